/* SPDX-License-Identifier: BSD-2-Clause */
/* A bounded cursor over XDR. Beyond the end it reads 0 and becomes bad, for good, so that its user may read everything
 * first and look at is_bad once. */
#ifndef LDMA_READER_H
#define LDMA_READER_H

#include <stdbool.h>

#include "base/bytes.h"

struct ldma_reader {
	const uint8_t *at;
	uint32_t left;
	bool is_bad;
};

/* Takes the next length bytes; NULL if they are not there. */
static inline const uint8_t *ldma_reader_take(struct ldma_reader *reader, uint32_t length)
{
	const uint8_t *at = reader->at;

	if (length > reader->left) {
		reader->is_bad = true;
		reader->left = 0;
		return NULL;
	}
	reader->at += length;
	reader->left -= length;
	return at;
}

static inline uint32_t ldma_reader_word(struct ldma_reader *reader)
{
	const uint8_t *at = ldma_reader_take(reader, 4);

	return at ? get32(at) : 0;
}

static inline uint64_t ldma_reader_hyper(struct ldma_reader *reader)
{
	const uint8_t *at = ldma_reader_take(reader, 8);

	return at ? get64(at) : 0;
}

/* Skips opaque data of variable length up to most, and its padding. */
static inline void ldma_reader_skip_opaque(struct ldma_reader *reader, uint32_t most)
{
	uint32_t length = ldma_reader_word(reader);

	if (length > most)
		reader->is_bad = true;
	else
		ldma_reader_take(reader, (length + 3) & ~UINT32_C(3));
}

/* Takes the next word, which has to be this one. */
static inline void ldma_reader_expect(struct ldma_reader *reader, uint32_t word)
{
	if (ldma_reader_word(reader) != word)
		reader->is_bad = true;
}

#endif
