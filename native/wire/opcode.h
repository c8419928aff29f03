/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The opcode table of opcode.def in C: codes, header masks, operations and roles. All of it is constant. */
#ifndef LDMA_OPCODE_H
#define LDMA_OPCODE_H

#include <stdint.h>

/* The position of a header in the wire order after the BTH. */
enum ldma_header {
#define HEADER(name, bytes) LDMA_##name,
#include "wire/opcode.def"
	LDMA_HEADER_COUNT
};

/* The same as bits of a mask. */
enum ldma_header_bit {
#define HEADER(name, bytes) LDMA_HAS_##name = 1u << LDMA_##name,
#include "wire/opcode.def"
};

enum ldma_opcode {
#define OPCODE(code, transport, name, headers, operation, role) LDMA_OPCODE_##name = (code),
#include "wire/opcode.def"
};

enum ldma_transport {
	LDMA_TRANSPORT_RC,
	LDMA_TRANSPORT_UC,
	LDMA_TRANSPORT_RD,
	LDMA_TRANSPORT_UD,
	LDMA_TRANSPORT_CNP,
	LDMA_TRANSPORT_XRC,
};

/* What a packet does, whatever transport carries it. Users see the names in filters and summaries. */
enum ldma_operation {
	LDMA_OP_UNKNOWN,
	LDMA_OP_SEND,
	LDMA_OP_WRITE,
	LDMA_OP_READ,
	LDMA_OP_READ_RESPONSE,
	LDMA_OP_ACK,
	LDMA_OP_ATOMIC_ACK,
	LDMA_OP_COMPARE_SWAP,
	LDMA_OP_FETCH_ADD,
	LDMA_OP_FLUSH,
	LDMA_OP_ATOMIC_WRITE,
	LDMA_OP_RESYNC,
	LDMA_OP_CNP,
	LDMA_OP_COUNT
};

enum ldma_role {
	LDMA_ROLE_REQUEST = 1,
	LDMA_ROLE_RESPONSE = 2,
	LDMA_ROLE_PAYLOAD = 4,
	LDMA_ROLE_FIRST = 8,
	LDMA_ROLE_LAST = 16,
	LDMA_ROLE_MIDDLE = 0,
	LDMA_ROLE_ONLY = LDMA_ROLE_FIRST | LDMA_ROLE_LAST,
};

struct ldma_opcode_info {
	const char *name;      /* "RC_SEND_FIRST"; NULL: no such opcode */
	uint16_t headers;      /* mask of ldma_header_bit */
	uint8_t headers_bytes; /* their length together */
	uint8_t transport;
	uint8_t operation;
	uint8_t role;
};

/* Indexed by the BTH's opcode byte; every index is valid. */
extern const struct ldma_opcode_info ldma_opcodes[256];

extern const uint8_t ldma_header_bytes[LDMA_HEADER_COUNT];
extern const char *const ldma_header_names[LDMA_HEADER_COUNT];
extern const char *const ldma_operation_names[LDMA_OP_COUNT];

#endif
