/* The words that the lines of opcode.def use, without prefixes. For the files that expand the table, not for headers. */
#ifndef LDMA_OPCODE_WORDS_H
#define LDMA_OPCODE_WORDS_H

#include "opcode.h"

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

#endif
