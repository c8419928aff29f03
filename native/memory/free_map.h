/* SPDX-License-Identifier: BSD-2-Clause */
/* A bitmap of free things, with up to two levels of summary above it: the lowest free bit of up to 262,144 is found in
 * three steps, of up to 64 in one, however many before it are taken. The caller owns the map's memory and any lock. */
#ifndef LDMA_FREE_MAP_H
#define LDMA_FREE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LDMA_FREE_MAP_MAX (64u * 64 * 64)

struct ldma_free_map {
	uint64_t
		top; /* which words of mid are not 0; in a small map, the bits themselves: 1 is free */
	uint64_t *mid; /* which words of low are not 0 */
	uint64_t *low; /* the bits; NULL: the map is small */
};

static inline size_t ldma_free_map_low_words(uint32_t count)
{
	return ((size_t)count + 63) / 64;
}

/* Returns how many words of memory a map of count bits needs besides itself. */
static inline size_t ldma_free_map_words(uint32_t count)
{
	size_t low = ldma_free_map_low_words(count);

	return count <= 64 ? 0 : (low + 63) / 64 + low;
}

/* Makes a map in which nothing is free. words is zeroed memory of ldma_free_map_words(count) words, which must outlive
 * the map. */
static inline void ldma_free_map_init(struct ldma_free_map *map, uint64_t *words, uint32_t count)
{
	*map = (struct ldma_free_map){0};
	if (count <= 64)
		return;
	map->mid = words;
	map->low = words + ldma_free_map_words(count) - ldma_free_map_low_words(count);
}

/* Makes the first count bits free, or taken. */
static inline void ldma_free_map_fill(struct ldma_free_map *map, uint32_t count, bool is_free)
{
	uint64_t *const levels[] = {map->low, map->mid, &map->top};

	for (int level = map->low ? 0 : 2; level < 3; level++) {
		uint32_t words = (count + 63) / 64;

		memset(levels[level], is_free ? 0xff : 0, words * sizeof(uint64_t));
		if (is_free && count % 64)
			levels[level][words - 1] = (UINT64_C(1) << count % 64) - 1;
		count = words;
	}
}

static inline void ldma_free_map_set(struct ldma_free_map *map, uint32_t i)
{
	if (!map->low) {
		map->top |= UINT64_C(1) << i;
		return;
	}
	map->low[i / 64] |= UINT64_C(1) << i % 64;
	map->mid[i / 4096] |= UINT64_C(1) << i / 64 % 64;
	map->top |= UINT64_C(1) << i / 4096;
}

/* Takes and returns the lowest free bit; there has to be one. */
static inline uint32_t ldma_free_map_take(struct ldma_free_map *map)
{
	uint32_t top = (uint32_t)__builtin_ctzll(map->top), mid, low;

	if (!map->low) {
		map->top &= map->top - 1;
		return top;
	}
	mid = top * 64 + (uint32_t)__builtin_ctzll(map->mid[top]);
	low = mid * 64 + (uint32_t)__builtin_ctzll(map->low[mid]);
	if (!(map->low[mid] &= map->low[mid] - 1) && !(map->mid[top] &= map->mid[top] - 1))
		map->top &= map->top - 1;
	return low;
}

#endif
