/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The words that the lines of opcode.def use, without prefixes. Only sources that expand the table include this, never
 * headers. */
#ifndef LDMA_OPCODE_WORDS_H
#define LDMA_OPCODE_WORDS_H

#include "wire/opcode.h"

enum {
#define HEADER(name, bytes) name = LDMA_HAS_##name,
#include "wire/opcode.def"
	REQUEST = LDMA_ROLE_REQUEST,
	RESPONSE = LDMA_ROLE_RESPONSE,
	PAYLOAD = LDMA_ROLE_PAYLOAD,
	FIRST = LDMA_ROLE_FIRST,
	MIDDLE = LDMA_ROLE_MIDDLE,
	LAST = LDMA_ROLE_LAST,
	ONLY = LDMA_ROLE_ONLY,
};

#endif
