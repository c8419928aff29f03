/* SPDX-License-Identifier: BSD-2-Clause */
/* A hash of a few bytes that this server made itself: it spreads well, but is not hard to guess. */
#ifndef LDMA_HASH_H
#define LDMA_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t ldma_hash_mix(uint64_t h)
{
	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	h ^= h >> 32;
	return h;
}

static inline uint64_t ldma_hash(const void *bytes, uint32_t length)
{
	const uint8_t *p = bytes;
	uint64_t h = length, word;

	for (; length >= sizeof(word); p += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = ldma_hash_mix(h ^ word);
	}
	word = 0;
	memcpy(&word, p, length);
	return ldma_hash_mix(h ^ word);
}

#endif
