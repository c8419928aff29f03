/* SPDX-License-Identifier: BSD-2-Clause */
#include "load/pattern.h"

#include <string.h>

/* Odd, so that it has an inverse among words, and words of one base are all different. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)
#define STEP_INVERSE UINT64_C(0xf1de83e19937733d)
_Static_assert(STEP *STEP_INVERSE == 1, "inverse");

#define WORD 8
#define RUN 64 /* words compared before looking at the result: the compiler makes vectors of them */

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t ldma_pattern_base(uint64_t seed, uint32_t generation)
{
	return mixed(mixed(seed + STEP) + generation);
}

uint64_t ldma_pattern_word(uint64_t base, uint64_t offset)
{
	return base + offset / WORD * STEP;
}

bool ldma_pattern_place(uint64_t base, uint64_t word, uint64_t size, uint64_t *ret_offset)
{
	uint64_t index = (word - base) * STEP_INVERSE;

	*ret_offset = index * WORD;
	return index < size / WORD;
}

static uint8_t byte_at(uint64_t base, uint64_t offset)
{
	return (uint8_t)(ldma_pattern_word(base, offset) >> offset % WORD * 8);
}

void ldma_pattern_fill(uint64_t base, uint64_t offset, uint8_t *memory, size_t length)
{
	uint64_t word;
	size_t words;

	for (; length && offset % WORD; offset++, length--)
		*memory++ = byte_at(base, offset);
	word = ldma_pattern_word(base, offset);
	words = length / WORD;
	for (size_t i = 0; i < words; i++) {
		uint64_t value = word + i * STEP;

		memcpy(memory + i * WORD, &value, WORD);
	}
	for (size_t i = words * WORD; i < length; i++)
		memory[i] = byte_at(base, offset + i);
}

static bool is_run_right(uint64_t word, const uint8_t *memory)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < RUN; i++) {
		uint64_t found;

		memcpy(&found, memory + i * WORD, WORD);
		wrong |= found ^ (word + i * STEP);
	}
	return !wrong;
}

size_t ldma_pattern_check(uint64_t base, uint64_t offset, const uint8_t *memory, size_t length)
{
	size_t at = 0;

	for (; at < length && (offset + at) % WORD; at++)
		if (memory[at] != byte_at(base, offset + at))
			return at;
	while (length - at >= (size_t)RUN * WORD &&
	       is_run_right(ldma_pattern_word(base, offset + at), memory + at))
		at += (size_t)RUN * WORD;
	for (; at < length; at++)
		if (memory[at] != byte_at(base, offset + at))
			return at;
	return length;
}
