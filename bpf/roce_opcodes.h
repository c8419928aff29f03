/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The opcode table of wire/opcode.def for BPF: the same classes as in C, less the names, which need pointers. */
#ifndef LDMA_ROCE_OPCODES_H
#define LDMA_ROCE_OPCODES_H

#include <linux/types.h>

#include "wire/opcode_words.h"

struct roce_opcode {
	__u16 headers;  /* mask of ldma_header_bit */
	__u8 operation; /* LDMA_OP_UNKNOWN: no such opcode */
	__u8 role;
};

static const struct roce_opcode roce_opcodes[256] = {
#define OPCODE(code, transport, name, headers_, operation_, role_)                                 \
	[code] = {.headers = (headers_), .operation = LDMA_OP_##operation_, .role = (role_)},
#include "wire/opcode.def"
};

#endif
