/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/iova.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory/guarded.h"
#include "memory/paging.h"
#include "memory/window.h"

#define NONE UINT32_MAX
/* The bits of an address that choose a line of the cache are those above 1 << shift granules. */
#define SHORT_SHIFT 3
#define LONG_SHIFT 9

int ldma_iova_init(struct ldma_iova *iova, uint32_t capacity, uint64_t space)
{
	uint32_t size = 1;

	while (size < capacity && size < 1u << 24)
		size *= 2;
	*iova = (struct ldma_iova){
		.capacity = size, .end = LDMA_IOVA_FIRST + space, .generation = 1};
	iova->regions = calloc(size, sizeof(*iova->regions));
	iova->buckets = calloc(size, sizeof(*iova->buckets));
	iova->lines = calloc(2 * LDMA_IOVA_LINES, sizeof(*iova->lines));
	if (!iova->regions || !iova->buckets || !iova->lines) {
		ldma_iova_destroy(iova);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < size; i++) {
		iova->buckets[i] = NONE;
		iova->regions[i].next = i + 1 < size ? i + 1 : NONE;
	}
	return 0;
}

void ldma_iova_destroy(struct ldma_iova *iova)
{
	for (uint32_t i = 0; iova->regions && i < iova->capacity; i++)
		if (iova->regions[i].pd)
			ldma_pd_put(iova->regions[i].pd);
	free(iova->regions);
	free(iova->buckets);
	free(iova->lines);
	*iova = (struct ldma_iova){0};
}

/* Keys are random: their low bits are the hash. */
static uint32_t *bucket(const struct ldma_iova *iova, uint32_t key)
{
	return &iova->buckets[key & (iova->capacity - 1)];
}

static struct ldma_region *find(const struct ldma_iova *iova, uint32_t key)
{
	for (uint32_t i = *bucket(iova, key); i != NONE; i = iova->regions[i].next)
		if (iova->regions[i].key == key)
			return &iova->regions[i];
	return NULL;
}

static int add(struct ldma_iova *iova, const struct ldma_region *wanted)
{
	uint32_t writes = LDMA_ACCESS_REMOTE_WRITE | LDMA_ACCESS_REMOTE_ATOMIC;
	uint32_t index = iova->free, *head = bucket(iova, wanted->key);

	if (wanted->access & ~(uint32_t)LDMA_ACCESS_ALL || !wanted->pd ||
	    wanted->length > UINT64_MAX - wanted->va)
		return -EINVAL;
	if ((wanted->access & writes) && !(wanted->access & LDMA_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (!wanted->key || find(iova, wanted->key))
		return -EEXIST;
	if (index == NONE)
		return -ENOMEM;
	iova->free = iova->regions[index].next;
	iova->regions[index] = *wanted;
	iova->regions[index].next = *head;
	iova->regions[index].is_valid = true;
	*head = index;
	iova->count++;
	ldma_pd_get(wanted->pd);
	return 0;
}

int ldma_iova_register(struct ldma_iova *iova, struct ldma_pd *pd, void *memory, uint64_t va,
		       uint64_t length, uint32_t access, uint32_t random_key)
{
	struct ldma_region region = {.va = va,
				     .length = length,
				     .memory = memory,
				     .pd = pd,
				     .key = random_key,
				     .access = access};

	return memory ? add(iova, &region) : -EINVAL;
}

int ldma_iova_register_window(struct ldma_iova *iova, struct ldma_pd *pd,
			      struct ldma_window *window, uint32_t access, uint32_t random_key)
{
	struct ldma_region region = {.va = window->va,
				     .length = window->size,
				     .window = window,
				     .pd = pd,
				     .key = random_key,
				     .access = access};
	int result = add(iova, &region);

	if (!result)
		window->users++;
	return result;
}

int ldma_iova_register_paged(struct ldma_iova *iova, struct ldma_pd *pd, struct ldma_paged *paged,
			     uint64_t va, uint32_t access, uint32_t random_key)
{
	struct ldma_region region = {.va = va,
				     .length = paged->length,
				     .paged = paged,
				     .pd = pd,
				     .key = random_key,
				     .access = access};

	return add(iova, &region);
}

int ldma_iova_deregister(struct ldma_iova *iova, uint32_t key)
{
	for (uint32_t *link = bucket(iova, key); *link != NONE; link = &iova->regions[*link].next) {
		uint32_t index = *link;
		struct ldma_region *region = &iova->regions[index];

		if (region->key != key)
			continue;
		*link = region->next;
		if (region->window)
			region->window->users--;
		ldma_pd_put(region->pd);
		ldma_iova_forget(iova); /* another region may get the key */
		*region = (struct ldma_region){.next = iova->free};
		iova->free = index;
		iova->count--;
		return 0;
	}
	return -ENOENT;
}

bool ldma_iova_may_invalidate(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key)
{
	const struct ldma_region *region = find(iova, key);

	return region && region->is_valid && region->pd == pd &&
	       (region->access & LDMA_ACCESS_REMOTE_INVALIDATE);
}

void ldma_iova_invalidate(struct ldma_iova *iova, uint32_t key)
{
	struct ldma_region *region = find(iova, key);

	if (region)
		region->is_valid = false;
}

/* Returns the region if it allows this access to the range, else NULL. It does not look at what is mapped there. */
static const struct ldma_region *find_allowed(const struct ldma_iova *iova,
					      const struct ldma_pd *pd, uint32_t key, uint64_t va,
					      uint64_t length, uint32_t access)
{
	const struct ldma_region *region = find(iova, key);

	if (!region || !region->is_valid || region->pd != pd)
		return NULL;
	if (access & ~region->access)
		return NULL;
	if (va < region->va || va - region->va > region->length ||
	    length > region->length - (va - region->va))
		return NULL;
	return region;
}

static bool is_mapped(const struct ldma_region *region, uint64_t va, uint64_t length,
		      uint32_t flags)
{
	const struct ldma_window *window = region->window;
	uint64_t offset = va - region->va, first, last;

	if (!length)
		return true;
	if (offset + length > window->end)
		return false;
	first = (window->pad + offset) >> window->table.shift;
	last = (window->pad + offset + length - 1) >> window->table.shift;
	return ldma_table_has(&window->table, first, last - first + 1, flags);
}

enum ldma_iova_result ldma_iova_check(const struct ldma_iova *iova, const struct ldma_pd *pd,
				      uint32_t key, uint64_t va, uint64_t length, uint32_t access)
{
	const struct ldma_region *region = find_allowed(iova, pd, key, va, length, access);

	if (!region || (region->window &&
			!is_mapped(region, va, length, LDMA_ENTRY_PRESENT | LDMA_ENTRY_OPEN)))
		return LDMA_IOVA_DENIED;
	return LDMA_IOVA_OK;
}

static struct ldma_iova_line *line_of(const struct ldma_iova *iova,
				      const struct ldma_region *region, uint64_t va, bool is_long)
{
	uint32_t shift = region->window->table.shift + (is_long ? LONG_SHIFT : SHORT_SHIFT);

	return &iova->lines[(((va >> shift) ^ region->key) & (LDMA_IOVA_LINES - 1)) +
			    (is_long ? LDMA_IOVA_LINES : 0)];
}

/* Returns whether the line is up to date and covers this address. */
static bool is_hit(const struct ldma_iova *iova, const struct ldma_iova_line *line,
		   const struct ldma_region *region, uint64_t va)
{
	return line->key == region->key && line->generation == iova->generation &&
	       va >= line->start && va < line->end;
}

/* Reads the table into a line and returns it, or NULL if nothing is mapped there. */
static struct ldma_iova_line *fill_line(struct ldma_iova *iova, const struct ldma_region *region,
					uint64_t va)
{
	const struct ldma_window *window = region->window;
	const struct ldma_table *table = &window->table;
	uint64_t index = (window->pad + (va - region->va)) >> table->shift;
	uint64_t base = window->va - window->pad;
	struct ldma_table_run run;
	struct ldma_iova_line *line;

	if (va - region->va >= window->end || !(table->entries[index] & LDMA_ENTRY_PRESENT))
		return NULL;
	run = ldma_table_run(table, index);
	line = line_of(iova, region, va, run.last - run.first == LDMA_TABLE_BLOCK - 1);
	*line = (struct ldma_iova_line){
		.start = base + (run.first << table->shift),
		.end = base + ((run.last + 1) << table->shift),
		.memory = ldma_entry_memory(table->entries[run.first]),
		.key = region->key,
		.generation = iova->generation,
	};
	if (line->end > window->va + window->end)
		line->end = window->va + window->end;
	return line;
}

/* Returns the memory of the byte at va, or NULL if nothing is mapped there. *ret_length is the length of the piece from
 * there on. */
static uint8_t *translate(struct ldma_iova *iova, const struct ldma_region *region, uint64_t va,
			  uint64_t *ret_length)
{
	struct ldma_iova_line *line;

	if (!region->window) {
		*ret_length = region->length - (va - region->va);
		return region->memory + (va - region->va);
	}
	line = line_of(iova, region, va, true);
	if (!is_hit(iova, line, region, va))
		line = line_of(iova, region, va, false);
	if (is_hit(iova, line, region, va)) {
		iova->hits++;
	} else {
		iova->misses++;
		line = fill_line(iova, region, va);
		if (!line)
			return NULL;
	}
	*ret_length = line->end - va;
	return line->memory + (va - line->start);
}

static bool is_guarded(const struct ldma_region *region)
{
	return region->window && region->window->is_guarded;
}

static bool move(const struct ldma_region *region, void *to, const void *from, uint64_t length)
{
	if (is_guarded(region))
		return ldma_guarded_copy(to, from, length);
	memcpy(to, from, length);
	return true;
}

static enum ldma_iova_result from_paged(enum ldma_paged_result result)
{
	static const enum ldma_iova_result results[] = {
		[LDMA_PAGED_OK] = LDMA_IOVA_OK,
		[LDMA_PAGED_ABSENT] = LDMA_IOVA_ABSENT,
		[LDMA_PAGED_DENIED] = LDMA_IOVA_DENIED,
	};

	return results[result];
}

static bool is_writing(uint32_t access)
{
	return access &
	       (LDMA_ACCESS_LOCAL_WRITE | LDMA_ACCESS_REMOTE_WRITE | LDMA_ACCESS_REMOTE_ATOMIC);
}

enum ldma_iova_result ldma_iova_look(const struct ldma_iova *iova, const struct ldma_pd *pd,
				     uint32_t key, uint64_t va, uint64_t length, uint32_t access)
{
	const struct ldma_region *region = find_allowed(iova, pd, key, va, length, access);

	if (!region || !region->paged)
		return LDMA_IOVA_OK;
	return from_paged(
		ldma_paged_look(region->paged, va - region->va, length, is_writing(access)));
}

void ldma_iova_fault(const struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
		     uint64_t va, uint64_t length, uint32_t access)
{
	const struct ldma_region *region = find_allowed(iova, pd, key, va, length, access);

	if (region && region->paged)
		ldma_paged_fault(region->paged, va - region->va, length, is_writing(access));
}

static enum ldma_iova_result copy(struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
				  uint64_t va, const uint8_t *in, uint8_t *out, uint32_t length,
				  uint32_t access)
{
	const struct ldma_region *region = find_allowed(iova, pd, key, va, length, access);
	bool is_checked = false;

	if (!region)
		return LDMA_IOVA_DENIED;
	if (region->paged)
		return from_paged(
			in ? ldma_paged_store(region->paged, va - region->va, in, length)
			   : ldma_paged_load(region->paged, va - region->va, out, length));
	while (length) {
		uint64_t piece;
		uint8_t *memory = translate(iova, region, va, &piece);

		if (!memory)
			return LDMA_IOVA_DENIED;
		if (piece < length && !is_checked) {
			if (!is_mapped(region, va, length, LDMA_ENTRY_PRESENT))
				return LDMA_IOVA_DENIED;
			is_checked = true;
		}
		if (piece > length)
			piece = length;
		if (!(in ? move(region, memory, in, piece) : move(region, out, memory, piece)))
			return LDMA_IOVA_DENIED;
		if (in)
			in += piece;
		else
			out += piece;
		va += piece;
		length -= (uint32_t)piece;
	}
	return LDMA_IOVA_OK;
}

enum ldma_iova_result ldma_iova_write(struct ldma_iova *iova, const struct ldma_pd *pd,
				      uint32_t key, uint64_t va, const void *data, uint32_t length,
				      uint32_t access)
{
	return copy(iova, pd, key, va, data, NULL, length, access);
}

enum ldma_iova_result ldma_iova_read(struct ldma_iova *iova, const struct ldma_pd *pd, uint32_t key,
				     uint64_t va, void *buf, uint32_t length, uint32_t access)
{
	return copy(iova, pd, key, va, NULL, buf, length, access);
}

enum ldma_iova_result ldma_iova_atomic(struct ldma_iova *iova, const struct ldma_pd *pd,
				       uint32_t key, uint64_t va,
				       uint64_t (*change)(uint64_t old, const void *context),
				       const void *context, uint64_t *ret_old)
{
	const struct ldma_region *region =
		find_allowed(iova, pd, key, va, sizeof(uint64_t), LDMA_ACCESS_REMOTE_ATOMIC);
	uint64_t piece = 0, old, new, *memory;

	if (!region)
		return LDMA_IOVA_DENIED;
	if (region->paged)
		return from_paged(ldma_paged_atomic(region->paged, va - region->va, change, context,
						    ret_old));
	memory = (uint64_t *)translate(iova, region, va, &piece);
	if (!memory || is_guarded(region) || (uintptr_t)memory & 7 || piece < sizeof(uint64_t))
		return LDMA_IOVA_DENIED;
	old = __atomic_load_n(memory, __ATOMIC_SEQ_CST);
	do {
		new = change(old, context);
	} while (!__atomic_compare_exchange_n(memory, &old, new, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	*ret_old = old;
	return LDMA_IOVA_OK;
}
