/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at pages of this process in the kernel's page table (/proc/self/pagemap), at their mappings (PROCMAP_QUERY,
 * Linux 6.11) and, where the process may, at their frames (/proc/kpageflags), and finds what has changed since the last
 * look. All that is known about a page is 8 bytes, in blocks of 512 pages.
 *
 * A change and its opposite between two looks are not found. */
#ifndef LDMA_LOOKS_H
#define LDMA_LOOKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/hooks.h"

#define LDMA_LOOK_PAGES 512
#define LDMA_LOOK_TOLD 256

struct ldma_look_block {
	uintptr_t base;
	uint32_t users;
	uint64_t pages[LDMA_LOOK_PAGES];
};

/* A range about which listeners have been told at once, so that looking need not find it. */
struct ldma_look_told {
	uintptr_t start, end;
	enum ldma_look_mark {
		LDMA_LOOK_EMPTY,   /* the pages are absent */
		LDMA_LOOK_GONE,    /* the mapping is gone */
		LDMA_LOOK_UNKNOWN, /* the next look tells nothing */
	} mark;
};

struct ldma_looks {
	pthread_mutex_t mutex;           /* guards the blocks; the gate may be taken inside */
	struct ldma_look_block **blocks; /* by address */
	uint64_t count, capacity;
	int pagemap_fd, maps_fd, frames_fd; /* negative where not to be had */
	/* Guarded by the gate. When it is full, the last entry grows to span what is told, as gone. */
	struct ldma_look_told told[LDMA_LOOK_TOLD];
	uint32_t told_count;
};

void ldma_looks_init(struct ldma_looks *looks);
/* Called once, before the first look. */
void ldma_looks_open(struct ldma_looks *looks);
void ldma_looks_destroy(struct ldma_looks *looks);

/* Below, all but ldma_looks_note are called with the mutex. */

/* Adds or removes a range of whole pages; ranges may overlap. ldma_looks_add returns 0 or -ENOMEM. */
int ldma_looks_add(struct ldma_looks *looks, uintptr_t start, uintptr_t end);
void ldma_looks_remove(struct ldma_looks *looks, uintptr_t start, uintptr_t end);

/* Notes what was told; in the gate. */
void ldma_looks_note(struct ldma_looks *looks, uintptr_t start, uintptr_t end,
		     enum ldma_look_mark mark);

/* Applies what was told to the blocks. */
void ldma_looks_apply(struct ldma_looks *looks, const struct ldma_look_told *told, uint32_t count);

/* Returns the first block at or behind the address, or NULL. */
struct ldma_look_block *ldma_looks_from(struct ldma_looks *looks, uintptr_t address);

/* Reads what the block's pages are now. */
void ldma_looks_read(const struct ldma_looks *looks, const struct ldma_look_block *block,
		     uint64_t *ret);

/* Calls tell for each run of pages that changed in the same way; from then on the block is as it is now. */
void ldma_looks_compare(struct ldma_look_block *block, const uint64_t *now,
			void (*tell)(void *context, const struct ldma_memory_event *event),
			void *context);

#endif
