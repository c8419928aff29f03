/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/window.h"

#include <errno.h>

#define NOBODY_YET 0
#define IN_USE (LDMA_ENTRY_PRESENT | LDMA_ENTRY_OPEN | LDMA_ENTRY_WRITABLE)

struct range {
	uint64_t first, count; /* granules */
};

static uint64_t granule(const struct ldma_window *window)
{
	return UINT64_C(1) << window->table.shift;
}

/* Returns the offset after the last granule. */
static uint64_t full_end(const struct ldma_window *window)
{
	return (window->table.count << window->table.shift) - window->pad;
}

int ldma_window_reserve(struct ldma_window *window, struct ldma_iova *iova, uint64_t size,
			uint8_t shift, uint64_t pad)
{
	uint64_t unit = UINT64_C(1) << (shift & 63), count, va = LDMA_IOVA_FIRST;
	struct ldma_window **link = &iova->windows;
	int result;

	if (!size || size > LDMA_IOVA_FIRST || shift < LDMA_TABLE_MIN_SHIFT ||
	    shift > LDMA_TABLE_MAX_SHIFT || pad >= unit)
		return -EINVAL;
	count = (pad + size + unit - 1) >> shift;
	for (;; link = &(*link)->next) { /* the first gap that is large enough */
		const struct ldma_window *next = *link;

		va = (va + unit - 1) & ~(unit - 1);
		if (va + (count << shift) <= (next ? next->va - next->pad : iova->end))
			break;
		if (!next)
			return -ENOSPC;
		va = next->va + full_end(next);
	}
	*window = (struct ldma_window){
		.iova = iova, .next = *link, .va = va + pad, .size = size, .pad = pad};
	result = ldma_table_init(&window->table, count, shift);
	if (result)
		return result;
	window->end = full_end(window);
	*link = window;
	return 0;
}

static bool is_inside(const struct ldma_window *window, uint64_t offset, uint64_t length)
{
	return length && offset < window->size && length <= window->size - offset;
}

static struct range granules(const struct ldma_window *window, uint64_t offset, uint64_t length)
{
	uint64_t first = (window->pad + offset) >> window->table.shift;
	uint64_t last = (window->pad + offset + length - 1) >> window->table.shift;

	return (struct range){first, last - first + 1};
}

static bool is_on_granule(const struct ldma_window *window, uint64_t offset)
{
	return !((window->pad + offset) & (granule(window) - 1));
}

/* Counts the pieces that begin in the range or right after it: at both ends of a range that changes pieces may merge or
 * part. */
static uint64_t pieces_around(const struct ldma_window *window, struct range r)
{
	return ldma_table_pieces(&window->table, r.first, r.count + 1);
}

int ldma_window_link(struct ldma_window *window, uint64_t offset, void *memory, uint64_t length)
{
	uint64_t within = (uintptr_t)memory & (granule(window) - 1), before;
	bool ends_within = !is_on_granule(window, offset + length);
	struct range r;

	if (!memory || !is_inside(window, offset, length))
		return -EINVAL;
	/* Only the first link may begin within its granule, and only at the window's pad. */
	if (offset ? within || !is_on_granule(window, offset) : within != window->pad)
		return -EIO;
	r = granules(window, offset, length);
	if (ldma_table_linked(&window->table, r.first, r.count))
		return -EEXIST;
	if (window->end != full_end(window) && offset >= window->end)
		return -EIO;
	if (ends_within &&
	    ldma_table_linked(&window->table, r.first, window->table.count - r.first))
		return -EIO;
	before = pieces_around(window, r);
	ldma_table_set(&window->table, r.first, r.count, (uint8_t *)memory - within, NOBODY_YET);
	window->pieces += pieces_around(window, r) - before;
	window->linked += r.count;
	if (ends_within)
		window->end = offset + length;
	return 0;
}

/* Checks a range, all of which has to be linked. */
static int find(const struct ldma_window *window, uint64_t offset, uint64_t length,
		struct range *ret)
{
	if (!is_inside(window, offset, length))
		return -EINVAL;
	*ret = granules(window, offset, length);
	if (offset + length > window->end ||
	    !ldma_table_has(&window->table, ret->first, ret->count, 0))
		return -ENOENT;
	return 0;
}

static int change(struct ldma_window *window, uint64_t offset, uint64_t length, uint32_t set,
		  uint32_t clear)
{
	struct range r;
	int result = find(window, offset, length, &r);

	if (result)
		return result;
	ldma_table_change(&window->table, r.first, r.count, set, clear);
	ldma_iova_forget(window->iova);
	return 0;
}

int ldma_window_sync(struct ldma_window *window, uint64_t offset, uint64_t length)
{
	return change(window, offset, length, IN_USE, 0);
}

int ldma_window_drain(struct ldma_window *window, uint64_t offset, uint64_t length)
{
	return change(window, offset, length, 0, LDMA_ENTRY_OPEN);
}

int ldma_window_reopen(struct ldma_window *window, uint64_t offset, uint64_t length)
{
	return change(window, offset, length, LDMA_ENTRY_OPEN, 0);
}

static void take_out(struct ldma_window *window, struct range r)
{
	uint64_t before = pieces_around(window, r);

	ldma_table_clear(&window->table, r.first, r.count);
	window->pieces += pieces_around(window, r) - before;
	window->linked -= r.count;
	if (!window->table.entries[(window->pad + window->end - 1) >> window->table.shift])
		window->end = full_end(window);
	ldma_iova_forget(window->iova);
}

int ldma_window_unlink(struct ldma_window *window, uint64_t offset, uint64_t length)
{
	struct range r;
	int result = find(window, offset, length, &r);

	if (result)
		return result;
	if ((offset && !is_on_granule(window, offset)) ||
	    (offset + length != window->end && !is_on_granule(window, offset + length)))
		return -EIO;
	take_out(window, r);
	return 0;
}

int ldma_window_free(struct ldma_window *window)
{
	if (window->linked || window->users)
		return -EBUSY;
	for (struct ldma_window **link = &window->iova->windows; *link; link = &(*link)->next)
		if (*link == window) {
			*link = window->next;
			break;
		}
	ldma_table_destroy(&window->table);
	*window = (struct ldma_window){0};
	return 0;
}

int ldma_window_close(struct ldma_window *window)
{
	if (window->users)
		return -EBUSY;
	window->linked = 0; /* the table goes with all that is in it */
	return ldma_window_free(window);
}

int ldma_window_destroy(struct ldma_window *window, uint64_t length)
{
	struct range r = {0};

	if (window->users)
		return -EBUSY;
	if (length ? find(window, 0, length, &r) || r.count != window->linked : window->linked)
		return -EINVAL;
	return ldma_window_close(window);
}
