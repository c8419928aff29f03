#define _GNU_SOURCE
#include "table.h"

#include <errno.h>
#include <sys/mman.h>

#define BLOCK 512 /* entries of one counter */
#define USABLE (LDMA_ENTRY_PRESENT | LDMA_ENTRY_OPEN | LDMA_ENTRY_WRITABLE)

int ldma_table_init(struct ldma_table *table, uint64_t count, uint8_t shift)
{
	uint64_t blocks = (count + BLOCK - 1) / BLOCK;
	void *memory;

	if (!count || count > UINT64_C(1) << 40 || shift < LDMA_TABLE_MIN_SHIFT ||
	    shift > LDMA_TABLE_MAX_SHIFT)
		return -EINVAL;
	*table = (struct ldma_table){.count = count, .shift = shift};
	table->mapped = count * sizeof(*table->entries) + blocks * sizeof(*table->usable);
	memory = mmap(NULL, table->mapped, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	table->entries = memory;
	table->usable = (uint32_t *)(table->entries + count);
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

static void put(struct ldma_table *table, uint64_t index, uint64_t entry)
{
	uint64_t old = table->entries[index];

	table->usable[index / BLOCK] += (uint32_t)is_usable(entry) - (uint32_t)is_usable(old);
	table->entries[index] = entry;
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
		if (i % BLOCK == 0 && end - i >= BLOCK && table->usable[i / BLOCK] == BLOCK &&
		    !(flags & ~(uint32_t)USABLE)) {
			i += BLOCK;
			continue;
		}
		if (!table->entries[i] || (table->entries[i] & flags) != flags)
			return false;
		i++;
	}
	return true;
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
