/* SPDX-License-Identifier: BSD-2-Clause */
/* A page table of the device, which maps the number of a granule to memory. An entry is the granule's address in this
 * process and what the device may do there. An empty table costs no memory, however large the range is. A window or a
 * paged region owns the table and any lock around it. */
#ifndef LDMA_TABLE_H
#define LDMA_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LDMA_TABLE_MIN_SHIFT 12
#define LDMA_TABLE_MAX_SHIFT 30

/* Flags in the low bits of an entry. An entry with an address and no flag has memory that the device may not use
 * yet. */
enum ldma_entry {
	LDMA_ENTRY_PRESENT = 1, /* messages that have begun may use it */
	LDMA_ENTRY_OPEN = 2,    /* new messages may begin to use it */
	LDMA_ENTRY_WRITABLE = 4,
	/* Of paged regions (paging.h): */
	LDMA_ENTRY_FAULTING = 8, /* asked for */
	LDMA_ENTRY_UNREADABLE =
		16, /* this and the next: could not be filled; the next access is denied */
	LDMA_ENTRY_UNWRITABLE = 32,
	LDMA_ENTRY_DEAD = 64, /* unmapped: another mapping may be there by now */
};
#define LDMA_ENTRY_FLAGS 0xfffu

#define LDMA_TABLE_BLOCK 512 /* entries */

/* What is known of a block of entries without looking at them. */
struct ldma_table_block {
	uint32_t usable; /* how many are present, open and writable */
	uint32_t joints; /* how many begin where the one before ends, with the same flags */
};

struct ldma_table {
	uint64_t *entries;
	struct ldma_table_block *blocks;
	uint64_t count; /* of granules */
	uint8_t shift;  /* a granule is 1 << shift bytes */
	size_t mapped;  /* bytes of both arrays */
};

/* Entries first .. last. */
struct ldma_table_run {
	uint64_t first, last;
};

/* Makes an empty table. Returns 0, -EINVAL (no granules, or a size that is not supported) or -ENOMEM. */
int ldma_table_init(struct ldma_table *table, uint64_t count, uint8_t shift);
void ldma_table_destroy(struct ldma_table *table);

/* Backs count granules from first on with what is at memory. The caller checks the range, here and below. */
void ldma_table_set(struct ldma_table *table, uint64_t first, uint64_t count, const void *memory,
		    uint32_t flags);
void ldma_table_clear(struct ldma_table *table, uint64_t first, uint64_t count);

/* Changes flags of the entries that have memory. */
void ldma_table_change(struct ldma_table *table, uint64_t first, uint64_t count, uint32_t set,
		       uint32_t clear);

/* Returns whether all entries have memory and all of flags; this is quick for blocks that are open and writable. */
bool ldma_table_has(const struct ldma_table *table, uint64_t first, uint64_t count, uint32_t flags);

/* Returns the entries around the index, which has memory, that are one piece of memory with the same flags: the whole
 * block if it is one piece, else those in the same cache line. */
struct ldma_table_run ldma_table_run(const struct ldma_table *table, uint64_t index);

/* Returns how many entries of the range have memory. */
uint64_t ldma_table_linked(const struct ldma_table *table, uint64_t first, uint64_t count);

/* Returns how many pieces of memory begin at the entries first .. first + count - 1: neighbours in one piece count
 * once. */
uint64_t ldma_table_pieces(const struct ldma_table *table, uint64_t first, uint64_t count);

static inline uint8_t *ldma_entry_memory(uint64_t entry)
{
	return (uint8_t *)(uintptr_t)(entry & ~(uint64_t)LDMA_ENTRY_FLAGS);
}

#endif
