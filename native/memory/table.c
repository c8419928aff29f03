/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/table.h"

#include <errno.h>
#include <sys/mman.h>

#define BLOCK LDMA_TABLE_BLOCK
#define LINE 8 /* entries in a cache line */
#define USABLE (LDMA_ENTRY_PRESENT | LDMA_ENTRY_OPEN | LDMA_ENTRY_WRITABLE)

int ldma_table_init(struct ldma_table *table, uint64_t count, uint8_t shift)
{
	uint64_t blocks = (count + BLOCK - 1) / BLOCK;
	void *memory;

	if (!count || count > UINT64_C(1) << 40 || shift < LDMA_TABLE_MIN_SHIFT ||
	    shift > LDMA_TABLE_MAX_SHIFT)
		return -EINVAL;
	*table = (struct ldma_table){.count = count, .shift = shift};
	table->mapped = count * sizeof(*table->entries) + blocks * sizeof(*table->blocks);
	memory = mmap(NULL, table->mapped, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	table->entries = memory;
	table->blocks = (struct ldma_table_block *)(table->entries + count);
	return 0;
}

void ldma_table_destroy(struct ldma_table *table)
{
	if (table->entries)
		munmap(table->entries, table->mapped);
	*table = (struct ldma_table){0};
}

static bool is_usable(uint64_t entry)
{
	return (entry & USABLE) == USABLE;
}

/* Returns whether the entry begins where the one before it in its block ends. */
static bool is_joint(const struct ldma_table *table, uint64_t index)
{
	return index % BLOCK && index < table->count && table->entries[index] &&
	       table->entries[index - 1] + (UINT64_C(1) << table->shift) == table->entries[index];
}

static void put(struct ldma_table *table, uint64_t index, uint64_t entry)
{
	struct ldma_table_block *block = &table->blocks[index / BLOCK];
	uint32_t joints = (uint32_t)is_joint(table, index) + is_joint(table, index + 1);

	block->usable += (uint32_t)is_usable(entry) - (uint32_t)is_usable(table->entries[index]);
	table->entries[index] = entry;
	block->joints += (uint32_t)is_joint(table, index) + is_joint(table, index + 1) - joints;
}

void ldma_table_set(struct ldma_table *table, uint64_t first, uint64_t count, const void *memory,
		    uint32_t flags)
{
	for (uint64_t i = 0; i < count; i++)
		put(table, first + i, ((uintptr_t)memory + (i << table->shift)) | flags);
}

void ldma_table_clear(struct ldma_table *table, uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++)
		put(table, i, 0);
}

void ldma_table_change(struct ldma_table *table, uint64_t first, uint64_t count, uint32_t set,
		       uint32_t clear)
{
	for (uint64_t i = first; i < first + count; i++)
		if (table->entries[i])
			put(table, i, (table->entries[i] & ~(uint64_t)clear) | set);
}

bool ldma_table_has(const struct ldma_table *table, uint64_t first, uint64_t count, uint32_t flags)
{
	uint64_t i = first, end = first + count;

	while (i < end) {
		/* A peer may name any range: a long one must not cost more than a short one. */
		if (table->blocks[i / BLOCK].usable == BLOCK && !(flags & ~(uint32_t)USABLE)) {
			i += BLOCK - i % BLOCK;
			continue;
		}
		if (!table->entries[i] || (table->entries[i] & flags) != flags)
			return false;
		i++;
	}
	return true;
}

struct ldma_table_run ldma_table_run(const struct ldma_table *table, uint64_t index)
{
	const struct ldma_table_block *block = &table->blocks[index / BLOCK];
	struct ldma_table_run run = {index, index};

	if (block->usable == BLOCK && block->joints == BLOCK - 1) {
		run.first = index - index % BLOCK;
		run.last = run.first + BLOCK - 1;
		return run;
	}
	while (run.first % LINE && is_joint(table, run.first))
		run.first--;
	while ((run.last + 1) % LINE && is_joint(table, run.last + 1))
		run.last++;
	return run;
}

uint64_t ldma_table_linked(const struct ldma_table *table, uint64_t first, uint64_t count)
{
	uint64_t linked = 0;

	for (uint64_t i = first; i < first + count; i++)
		linked += table->entries[i] != 0;
	return linked;
}

uint64_t ldma_table_pieces(const struct ldma_table *table, uint64_t first, uint64_t count)
{
	uint64_t pieces = 0;

	for (uint64_t i = first; i < first + count && i < table->count; i++) {
		const uint8_t *memory = ldma_entry_memory(table->entries[i]);
		const uint8_t *before = i ? ldma_entry_memory(table->entries[i - 1]) : NULL;

		pieces += memory && (!before || before + (UINT64_C(1) << table->shift) != memory);
	}
	return pieces;
}
