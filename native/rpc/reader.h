/* A bounded cursor over XDR. What is not there reads as 0 and makes the reader bad, for good: who has read all that he
 * wants asks once. */
#ifndef LDMA_READER_H
#define LDMA_READER_H

#include <stdbool.h>

#include "bytes.h"

struct ldma_reader {
	const uint8_t *at;
	uint32_t left;
	bool is_bad;
};

/* The next length bytes, or NULL. */
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

/* Opaque data of variable length up to most, and its padding. */
static inline void ldma_reader_skip_opaque(struct ldma_reader *reader, uint32_t most)
{
	uint32_t length = ldma_reader_word(reader);

	if (length > most)
		reader->is_bad = true;
	else
		ldma_reader_take(reader, (length + 3) & ~UINT32_C(3));
}

/* The next word has to be this one. */
static inline void ldma_reader_expect(struct ldma_reader *reader, uint32_t word)
{
	if (ldma_reader_word(reader) != word)
		reader->is_bad = true;
}

#endif
