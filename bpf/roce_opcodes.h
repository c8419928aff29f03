/* The opcode table of core/opcode.def for BPF: the same classes as in C, less the names, which need pointers. */
#ifndef LDMA_ROCE_OPCODES_H
#define LDMA_ROCE_OPCODES_H

#include <linux/types.h>

#include "opcode.h"

/* The table's own words, so that its lines read without prefixes. */
enum {
#define HEADER(name, bytes) name = LDMA_HAS_##name,
#include "opcode.def"
	REQUEST = LDMA_ROLE_REQUEST,
	RESPONSE = LDMA_ROLE_RESPONSE,
	PAYLOAD = LDMA_ROLE_PAYLOAD,
	FIRST = LDMA_ROLE_FIRST,
	MIDDLE = LDMA_ROLE_MIDDLE,
	LAST = LDMA_ROLE_LAST,
	ONLY = LDMA_ROLE_ONLY,
};

struct roce_opcode {
	__u16 headers;  /* mask of ldma_header_bit */
	__u8 operation; /* LDMA_OP_UNKNOWN: no such opcode */
	__u8 role;
};

static const struct roce_opcode roce_opcodes[256] = {
#define OPCODE(code, transport, name, headers_, operation_, role_)                                 \
	[code] = {.headers = (headers_), .operation = LDMA_OP_##operation_, .role = (role_)},
#include "opcode.def"
};

#endif
