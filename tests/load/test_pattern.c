/* SPDX-License-Identifier: BSD-2-Clause */
/* Data that says where it belongs: any wrong byte is found, wherever it is, and a word of ours tells its place. */
#undef NDEBUG
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "load/pattern.h"

#define MOST 3000

static void check_every_byte(uint64_t offset, size_t length)
{
	uint64_t base = ldma_pattern_base(7, 1), other = ldma_pattern_base(7, 2);
	uint8_t *data = malloc(length); /* of this size, so that ASan sees its end */

	assert(data);
	ldma_pattern_fill(base, offset, data, length);
	assert(ldma_pattern_check(base, offset, data, length) == length);
	assert(ldma_pattern_check(other, offset, data, length) < 2);
	for (size_t at = 0; at < length; at += length > 100 ? 37 : 1) {
		data[at] ^= 0x10;
		assert(ldma_pattern_check(base, offset, data, length) == at);
		data[at] ^= 0x10;
	}
	free(data);
}

/* In parts it is the same as in one. */
static void check_parts(void)
{
	uint64_t base = ldma_pattern_base(3, 9);
	uint8_t whole[MOST], parts[MOST];

	ldma_pattern_fill(base, 4096, whole, MOST);
	for (size_t at = 0, length = 1; at < MOST; at += length, length = length * 2 % 61 + 1) {
		if (length > MOST - at)
			length = MOST - at;
		ldma_pattern_fill(base, 4096 + at, parts + at, length);
		assert(ldma_pattern_check(base, 4096 + at, whole + at, length) == length);
	}
	assert(!memcmp(whole, parts, MOST));
}

static void check_places(void)
{
	uint64_t base = ldma_pattern_base(1, 1), place;

	for (uint64_t offset = 0; offset < 1 << 20; offset += 8) {
		assert(ldma_pattern_place(base, ldma_pattern_word(base, offset), 1 << 20, &place));
		assert(place == offset);
	}
	assert(!ldma_pattern_place(base, 0, 1 << 20, &place));
}

int main(void)
{
	for (size_t length = 1; length < 40; length++)
		for (uint64_t offset = 0; offset < 9; offset++)
			check_every_byte(offset, length);
	check_every_byte(1 << 20, MOST);
	check_every_byte((UINT64_C(1) << 40) + 5, MOST);
	check_every_byte(0, 512);
	check_parts();
	check_places();
	return 0;
}
