/* The device's own page table: number of a granule -> memory. An entry is the granule's address in this process and what
 * the device may do there; an empty table costs no memory, however large the range is. */
#ifndef LDMA_TABLE_H
#define LDMA_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LDMA_TABLE_MIN_SHIFT 12
#define LDMA_TABLE_MAX_SHIFT 30

/* In the low bits of an entry. An entry with an address and none of them has memory that nobody may use yet. */
enum ldma_entry {
	LDMA_ENTRY_PRESENT = 1, /* messages that have begun may use it, */
	LDMA_ENTRY_OPEN = 2,    /* and new ones may begin */
	LDMA_ENTRY_WRITABLE = 4,
	/* Of paged regions (paging.h): */
	LDMA_ENTRY_FAULTING = 8, /* asked for */
	LDMA_ENTRY_UNREADABLE =
		16, /* could not be filled, for reading or for writing; the next access hears of it */
	LDMA_ENTRY_UNWRITABLE = 32,
	LDMA_ENTRY_DEAD = 64, /* unmapped: may be somebody else's by now */
};
#define LDMA_ENTRY_FLAGS 0xfffu

#define LDMA_TABLE_BLOCK 512 /* entries */

/* What is known of a block of entries without looking at them. */
struct ldma_table_block {
	uint32_t usable; /* how many are present, open and writable */
	uint32_t joints; /* how many go on where the one before them ends, with the same flags */
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

/* 0, -EINVAL (no granules, or none of that size) or -ENOMEM. */
int ldma_table_init(struct ldma_table *table, uint64_t count, uint8_t shift);
void ldma_table_destroy(struct ldma_table *table);

/* Backs count granules from first on with what is at memory. The range is the caller's to check, here and below. */
void ldma_table_set(struct ldma_table *table, uint64_t first, uint64_t count, const void *memory,
		    uint32_t flags);
void ldma_table_clear(struct ldma_table *table, uint64_t first, uint64_t count);

/* Changes flags of the entries that have memory. */
void ldma_table_change(struct ldma_table *table, uint64_t first, uint64_t count, uint32_t set,
		       uint32_t clear);

/* Whether all entries have memory and all of flags; quick for blocks that are open and writable. */
bool ldma_table_has(const struct ldma_table *table, uint64_t first, uint64_t count, uint32_t flags);

/* Entries around the index, which has memory, that are one piece of it with the same flags: a whole block, if that is
 * one, else those in the same cache line. */
struct ldma_table_run ldma_table_run(const struct ldma_table *table, uint64_t index);

/* How many entries of the range have memory. */
uint64_t ldma_table_linked(const struct ldma_table *table, uint64_t first, uint64_t count);

/* Pieces of memory that the entries first .. first + count - 1 begin: neighbours that are one piece count once. */
uint64_t ldma_table_pieces(const struct ldma_table *table, uint64_t first, uint64_t count);

static inline uint8_t *ldma_entry_memory(uint64_t entry)
{
	return (uint8_t *)(uintptr_t)(entry & ~(uint64_t)LDMA_ENTRY_FLAGS);
}

#endif
