/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/opcode_words.h"

enum {
#define HEADER(name, bytes) name##_BYTES = (bytes),
#include "wire/opcode.def"
};

#define BYTES_IF(mask, name) (((mask) & (name)) ? name##_BYTES : 0)
#define HEADERS_BYTES(mask)                                                                        \
	(BYTES_IF(mask, RDETH) + BYTES_IF(mask, DETH) + BYTES_IF(mask, XRCETH) +                   \
	 BYTES_IF(mask, FETH) + BYTES_IF(mask, RETH) + BYTES_IF(mask, ATOMICETH) +                 \
	 BYTES_IF(mask, AETH) + BYTES_IF(mask, ATOMICACKETH) + BYTES_IF(mask, IMMDT) +             \
	 BYTES_IF(mask, IETH) + BYTES_IF(mask, CNPETH))

const struct ldma_opcode_info ldma_opcodes[256] = {
#define OPCODE(code, transport_, name_, headers_, operation_, role_)                               \
	[code] = {                                                                                 \
		.name = #name_,                                                                    \
		.headers = (headers_),                                                             \
		.headers_bytes = HEADERS_BYTES(headers_),                                          \
		.transport = LDMA_TRANSPORT_##transport_,                                          \
		.operation = LDMA_OP_##operation_,                                                 \
		.role = (role_),                                                                   \
	},
#include "wire/opcode.def"
};

const uint8_t ldma_header_bytes[LDMA_HEADER_COUNT] = {
#define HEADER(name, bytes) [LDMA_##name] = (bytes),
#include "wire/opcode.def"
};

const char *const ldma_header_names[LDMA_HEADER_COUNT] = {
#define HEADER(name, bytes) [LDMA_##name] = #name,
#include "wire/opcode.def"
};

const char *const ldma_operation_names[LDMA_OP_COUNT] = {
	[LDMA_OP_UNKNOWN] = "UNKNOWN",
	[LDMA_OP_SEND] = "SEND",
	[LDMA_OP_WRITE] = "WRITE",
	[LDMA_OP_READ] = "READ",
	[LDMA_OP_READ_RESPONSE] = "READ_RESPONSE",
	[LDMA_OP_ACK] = "ACK",
	[LDMA_OP_ATOMIC_ACK] = "ATOMIC_ACK",
	[LDMA_OP_COMPARE_SWAP] = "COMPARE_SWAP",
	[LDMA_OP_FETCH_ADD] = "FETCH_ADD",
	[LDMA_OP_FLUSH] = "FLUSH",
	[LDMA_OP_ATOMIC_WRITE] = "ATOMIC_WRITE",
	[LDMA_OP_RESYNC] = "RESYNC",
	[LDMA_OP_CNP] = "CNP",
};
