/* SPDX-License-Identifier: BSD-2-Clause */
/* The pager keeps the tables of paged regions (memory/paging.h) in step with this process's memory: the regions are the
 * first listeners to what happens to it (memory/hooks.h). Any thread may call these functions.
 *
 * The pager has two threads for all regions of the process, and a third one while somebody wants pages to be looked at.
 * The watcher reads from a userfaultfd what the program does to its mappings (REMOVE, UNMAP, REMAP) and tells it before
 * the program goes on. The filler brings in the pages that devices ask for. The watcher waits for nothing but the gate, which is held for the copy of
 * one packet at most, and allocates nothing: so a program may free memory whatever locks it holds, the allocator's and
 * Python's included.
 *
 * Ranges are watched in write-protect mode, asynchronously: the kernel itself resolves such a fault and remembers the
 * page as written. So no fault of the program waits for the pager, and no privilege is needed. */
#ifndef LDMA_PAGER_H
#define LDMA_PAGER_H

#include "memory/paging.h"

struct ldma_pager_range {
	uint64_t offset, length;
};

/* Makes a paged region over memory of this process, with all pages absent; ldma_pager_close ends it. Returns 0 or a
 * negative errno. -ENOSYS: the kernel has no asynchronous write-protection (Linux 6.7) or no userfaultfd; -EPERM: the
 * process may not have one; -EINVAL: this memory cannot be watched; -EACCES: it may not be watched, being a file that
 * is not open for writing; -EBUSY: another userfaultfd watches it; -ENOMEM, -EMFILE, -EAGAIN: the process has used up
 * what it may have. */
int ldma_pager_open(void *memory, uint64_t length, struct ldma_paged **ret);

/* Ends the region. No device may use it any more. It does not wait for threads that hold the region. */
void ldma_pager_close(struct ldma_paged *paged);

/* A caller of what follows holds the region if another thread may close it meanwhile: until the drop its memory stays,
 * and the calls return -EBADF once it is closed. */
void ldma_pager_hold(struct ldma_paged *paged);
void ldma_pager_drop(struct ldma_paged *paged);

/* Below, the caller makes sure that offsets and lengths are within the region. */

/* Fills the range before it is needed. Returns 0, or a negative errno at the first page that cannot be filled; those
 * before it are. */
int ldma_pager_prefetch(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write);

/* Lets the range be used again after the program has mapped something new there. Returns 0 or an errno as
 * ldma_pager_open. */
int ldma_pager_offer(struct ldma_paged *paged, uint64_t offset, uint64_t length);

/* Waits for the end of the copy that has begun, and finds the pages of the range that were written, by the device or by
 * the program, since the last call. Writes up to count ranges to ret and the offset up to which it looked to *ret_end.
 * Returns how many ranges, or a negative errno. */
long ldma_pager_sync(struct ldma_paged *paged, uint64_t offset, uint64_t length,
		     struct ldma_pager_range *ret, uint32_t count, uint64_t *ret_end);

#endif
