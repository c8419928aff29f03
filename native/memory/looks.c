/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/looks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/paging.h"

/* The headers of some systems are older than their kernels: */
#ifndef PROCMAP_QUERY /* Linux 6.11 */
struct procmap_query {
	uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size;
	uint64_t vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#define PROCMAP_QUERY_COVERING_OR_NEXT_VMA 0x10
#endif

#define BLOCK (LDMA_LOOK_PAGES * LDMA_PAGE)

/* A page: what /proc/self/pagemap says, and in bits that are not used for that, what else is known. */
#define FRAME                                                                                      \
	((UINT64_C(1) << 55) -                                                                     \
	 1) /* 0: the process may not know; of a page in swap: its place there */
#define MAPPED (UINT64_C(1) << 55)
#define RIGHTS_SHIFT 56
#define RIGHTS (UINT64_C(7) << RIGHTS_SHIFT) /* as PROT_..., and as vma_flags */
#define DIRTY (UINT64_C(1) << 59)            /* of a file: its frame */
#define KNOWN (UINT64_C(1) << 60)
#define OF_FILE (UINT64_C(1) << 61)
#define SWAPPED (UINT64_C(1) << 62)
#define PRESENT (UINT64_C(1) << 63)
#define FROM_PAGEMAP (PRESENT | SWAPPED | OF_FILE | FRAME)

#define FRAME_DIRTY_BIT 4 /* in /proc/kpageflags */

void ldma_looks_init(struct ldma_looks *looks)
{
	*looks = (struct ldma_looks){.pagemap_fd = -1, .maps_fd = -1, .frames_fd = -1};
	pthread_mutex_init(&looks->mutex, NULL);
}

void ldma_looks_open(struct ldma_looks *looks)
{
	looks->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	looks->maps_fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	looks->frames_fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
}

void ldma_looks_destroy(struct ldma_looks *looks)
{
	const int fds[] = {looks->pagemap_fd, looks->maps_fd, looks->frames_fd};

	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	for (uint64_t i = 0; i < looks->count; i++)
		free(looks->blocks[i]);
	free(looks->blocks);
	pthread_mutex_destroy(&looks->mutex);
}

/* Returns the place of the first block at or behind the address. */
static uint64_t place_of(const struct ldma_looks *looks, uintptr_t address)
{
	uint64_t low = 0, high = looks->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (looks->blocks[middle]->base < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct ldma_look_block *ldma_looks_from(struct ldma_looks *looks, uintptr_t address)
{
	uint64_t place = place_of(looks, address);

	return place < looks->count ? looks->blocks[place] : NULL;
}

static int insert(struct ldma_looks *looks, uint64_t place, uintptr_t base)
{
	struct ldma_look_block *block = calloc(1, sizeof(*block));

	if (looks->count == looks->capacity) {
		uint64_t capacity = looks->capacity ? looks->capacity * 2 : 16;
		void *grown = realloc(looks->blocks, capacity * sizeof(looks->blocks[0]));

		if (grown) {
			looks->blocks = grown;
			looks->capacity = capacity;
		}
	}
	if (!block || looks->count == looks->capacity) {
		free(block);
		return -ENOMEM;
	}
	memmove(&looks->blocks[place + 1], &looks->blocks[place],
		(looks->count - place) * sizeof(looks->blocks[0]));
	looks->blocks[place] = block;
	looks->count++;
	block->base = base;
	return 0;
}

int ldma_looks_add(struct ldma_looks *looks, uintptr_t start, uintptr_t end)
{
	for (uintptr_t base = start & ~(BLOCK - 1); base < end; base += BLOCK) {
		uint64_t place = place_of(looks, base);
		bool is_there = place < looks->count && looks->blocks[place]->base == base;

		if (!is_there && insert(looks, place, base)) {
			if (base > start)
				ldma_looks_remove(looks, start, base);
			return -ENOMEM;
		}
		looks->blocks[place]->users++;
	}
	return 0;
}

void ldma_looks_remove(struct ldma_looks *looks, uintptr_t start, uintptr_t end)
{
	uint64_t first = place_of(looks, start & ~(BLOCK - 1)), kept = first, at = first;

	for (; at < looks->count; at++) {
		struct ldma_look_block *block = looks->blocks[at];

		if (block->base < end && !--block->users)
			free(block);
		else
			looks->blocks[kept++] = block;
	}
	looks->count = kept;
}

void ldma_looks_note(struct ldma_looks *looks, uintptr_t start, uintptr_t end,
		     enum ldma_look_mark mark)
{
	struct ldma_look_told *last = &looks->told[LDMA_LOOK_TOLD - 1];

	if (looks->told_count < LDMA_LOOK_TOLD) {
		looks->told[looks->told_count++] = (struct ldma_look_told){start, end, mark};
		return;
	}
	last->mark = LDMA_LOOK_GONE;
	last->start = start < last->start ? start : last->start;
	last->end = end > last->end ? end : last->end;
}

static uint64_t marked(uint64_t page, enum ldma_look_mark mark)
{
	switch (mark) {
	case LDMA_LOOK_EMPTY:
		return page & (KNOWN | MAPPED | RIGHTS);
	case LDMA_LOOK_GONE:
		return KNOWN;
	case LDMA_LOOK_UNKNOWN:
		break;
	}
	return 0;
}

void ldma_looks_apply(struct ldma_looks *looks, const struct ldma_look_told *told, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t place = place_of(looks, told[i].start & ~(BLOCK - 1));

		for (; place < looks->count && looks->blocks[place]->base < told[i].end; place++) {
			struct ldma_look_block *block = looks->blocks[place];

			for (uint64_t page = 0; page < LDMA_LOOK_PAGES; page++) {
				uintptr_t at = block->base + page * LDMA_PAGE;

				if (told[i].start <= at && at < told[i].end)
					block->pages[page] =
						marked(block->pages[page], told[i].mark);
			}
		}
	}
}

/* Enters the mappings. On a kernel that does not tell, everything counts as mapped, with no rights known. */
static void read_mappings(const struct ldma_looks *looks, uintptr_t base, uint64_t *pages)
{
	uintptr_t at = base, end = base + BLOCK;

	while (at < end) {
		struct procmap_query query = {
			.size = sizeof(query),
			.query_flags = PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
			.query_addr = at,
			.vma_end = end,
		};
		uint64_t rights;

		if (ioctl(looks->maps_fd, PROCMAP_QUERY, &query)) {
			if (errno == ENOENT) /* nothing is mapped behind */
				return;
			query.vma_start = at;
			query.vma_end = end;
			query.vma_flags = 0;
		}
		rights = query.vma_flags << RIGHTS_SHIFT & RIGHTS;
		at = query.vma_start > at ? query.vma_start & ~(LDMA_PAGE - 1) : at;
		for (; at < query.vma_end && at < end; at += LDMA_PAGE)
			pages[(at - base) / LDMA_PAGE] |= MAPPED | rights;
	}
}

/* Enters which pages of files are dirty. */
static void read_frames(const struct ldma_looks *looks, uint64_t *pages)
{
	uint64_t flags[LDMA_LOOK_PAGES];
	const uint64_t wanted = PRESENT | OF_FILE | MAPPED;

	for (uint32_t first = 0, count; first < LDMA_LOOK_PAGES; first += count) {
		uint64_t frame = pages[first] & FRAME;
		ssize_t length;

		count = 1;
		if ((pages[first] & wanted) != wanted || !frame)
			continue;
		while (first + count < LDMA_LOOK_PAGES &&
		       (pages[first + count] & wanted) == wanted &&
		       (pages[first + count] & FRAME) == frame + count)
			count++;
		length = pread(looks->frames_fd, flags, count * sizeof(flags[0]),
			       (off_t)(frame * sizeof(flags[0])));
		for (uint32_t i = 0; length > 0 && i < (size_t)length / sizeof(flags[0]); i++)
			if (flags[i] >> FRAME_DIRTY_BIT & 1)
				pages[first + i] |= DIRTY;
	}
}

void ldma_looks_read(const struct ldma_looks *looks, const struct ldma_look_block *block,
		     uint64_t *ret)
{
	size_t size = LDMA_LOOK_PAGES * sizeof(ret[0]);
	off_t offset = (off_t)(block->base / LDMA_PAGE * sizeof(ret[0]));
	ssize_t length = pread(looks->pagemap_fd, ret, size, offset);

	if (length < 0)
		length = 0;
	memset((char *)ret + length, 0, size - (size_t)length);
	for (uint32_t i = 0; i < LDMA_LOOK_PAGES; i++)
		ret[i] = (ret[i] & FROM_PAGEMAP) | KNOWN;
	read_mappings(looks, block->base, ret);
	if (looks->frames_fd >= 0)
		read_frames(looks, ret);
}

/* What a page's change is called; hook 0 (release) means that there is none. */
struct change {
	enum ldma_hook hook;
	enum ldma_cause cause;
	uint32_t protection;
};

static struct change mapping_change(uint64_t before, uint64_t now)
{
	struct change change = {0};

	if (!(before & MAPPED) && now & MAPPED)
		change = (struct change){LDMA_HOOK_update_range, LDMA_CAUSE_mapped, 0};
	else if (before & MAPPED && !(now & MAPPED))
		change = (struct change){LDMA_HOOK_invalidate_range, LDMA_CAUSE_unmapped, 0};
	else if ((before ^ now) & RIGHTS)
		change = (struct change){LDMA_HOOK_change_protection, LDMA_CAUSE_protected,
					 (uint32_t)((now & RIGHTS) >> RIGHTS_SHIFT)};
	return change;
}

/* The kernel shows a page that has only been marked (for what was written) as swapped. So a page that was absent and is
 * in swap now is not a change. */
static struct change content_change(uint64_t before, uint64_t now)
{
	struct change change = {0};

	if (!(before & now & MAPPED))
		return change;
	if (before & PRESENT && !(now & PRESENT))
		change = (struct change){
			LDMA_HOOK_invalidate_range,
			now & SWAPPED ? LDMA_CAUSE_swapped_out : LDMA_CAUSE_dropped, 0};
	else if (!(before & PRESENT) && now & PRESENT)
		change = (struct change){LDMA_HOOK_update_range, LDMA_CAUSE_brought_in, 0};
	else if (before & PRESENT && before & FRAME && now & FRAME && (before ^ now) & FRAME)
		change = (struct change){LDMA_HOOK_invalidate_range, LDMA_CAUSE_migrated, 0};
	else if (before & PRESENT && before & DIRTY && !(now & DIRTY))
		change = (struct change){LDMA_HOOK_sync_range, LDMA_CAUSE_written_back, 0};
	return change;
}

static bool are_same(struct change a, struct change b)
{
	return a.hook == b.hook && a.cause == b.cause && a.protection == b.protection;
}

void ldma_looks_compare(struct ldma_look_block *block, const uint64_t *now,
			void (*tell)(void *context, const struct ldma_memory_event *event),
			void *context)
{
	struct change (*const kinds[])(uint64_t, uint64_t) = {mapping_change, content_change};

	for (int kind = 0; kind < 2; kind++) {
		struct change run = {0};
		uint32_t first = 0;

		for (uint32_t page = 0; page <= LDMA_LOOK_PAGES; page++) {
			struct change change = {0};

			if (page < LDMA_LOOK_PAGES && block->pages[page] & KNOWN)
				change = kinds[kind](block->pages[page], now[page]);
			if (page < LDMA_LOOK_PAGES && page && are_same(change, run))
				continue;
			if (run.hook) {
				struct ldma_memory_event event = {
					.start = block->base + first * LDMA_PAGE,
					.end = block->base + page * LDMA_PAGE,
					.hook = run.hook,
					.cause = run.cause,
					.protection = run.protection,
				};

				tell(context, &event);
				event.hook = LDMA_HOOK_update_range;
				if (run.cause == LDMA_CAUSE_migrated)
					tell(context, &event);
			}
			run = change;
			first = page;
		}
	}
	memcpy(block->pages, now, sizeof(block->pages));
}
