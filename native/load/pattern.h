/* SPDX-License-Identifier: BSD-2-Clause */
/* Data that says where it belongs: each aligned word of eight bytes is a function of the file, of how often that place
 * was written (its generation) and of the offset. So a wrong word that the load wrote tells where it belongs. */
#ifndef LDMA_PATTERN_H
#define LDMA_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns what the words of a file in one generation have in common. */
uint64_t ldma_pattern_base(uint64_t seed, uint32_t generation);

void ldma_pattern_fill(uint64_t base, uint64_t offset, uint8_t *memory, size_t length);

/* Returns how many bytes are right before the first wrong one; length: all are. */
size_t ldma_pattern_check(uint64_t base, uint64_t offset, const uint8_t *memory, size_t length);

/* Returns the word that belongs at an offset, a multiple of eight. */
uint64_t ldma_pattern_word(uint64_t base, uint64_t offset);

/* Writes to *ret_offset where a word belongs. Returns true if that is below size, so that the load most likely wrote
 * it. */
bool ldma_pattern_place(uint64_t base, uint64_t word, uint64_t size, uint64_t *ret_offset);

#endif
