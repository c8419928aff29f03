/* The pager: keeps the tables of paged regions (core/paging.h) in step with this process's memory.
 *
 * Two threads of its own, for all regions of the process. The watcher reads from a userfaultfd what the program does to its
 * mappings (REMOVE, UNMAP, REMAP) and takes pages out of the tables before the program goes on. The filler brings in the
 * pages that devices ask for. The watcher waits for nothing but the gate, which is held for the copy of one packet at most,
 * and allocates nothing: so a program may free memory whatever it holds, the allocator's locks and Python's included.
 *
 * Ranges are watched in write-protect mode, asynchronously: the kernel itself resolves such a fault and remembers the page
 * as written. So nobody's fault ever waits for the pager, and no privilege is needed. */
#ifndef LDMA_PAGER_H
#define LDMA_PAGER_H

#include "paging.h"

struct ldma_pager_range {
	uint64_t offset, length;
};

/* A paged region over memory of this process, with all pages absent. 0, or a negative errno: -ENOSYS: the kernel has no
 * asynchronous write-protection (Linux 6.7) or no userfaultfd; -EPERM: the process may not have one; -EINVAL: this memory
 * cannot be watched; -EACCES: it may not, being a file that is not open for writing; -EBUSY: another userfaultfd does;
 * -ENOMEM, -EMFILE, -EAGAIN: the process has used up what it may have. */
int ldma_pager_open(void *memory, uint64_t length, struct ldma_paged **ret);

/* No device may use it any more. Waits for nobody. */
void ldma_pager_close(struct ldma_paged *paged);

/* For who calls what follows while another thread may close the region: in between it stays, and they return -EBADF. */
void ldma_pager_hold(struct ldma_paged *paged);
void ldma_pager_drop(struct ldma_paged *paged);

/* Offsets and lengths are within the region, which is the caller's to check. */

/* Fills the range before it is needed. 0, or a negative errno: where it stands, a page cannot be filled; those before it
 * are. */
int ldma_pager_prefetch(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write);

/* The program has mapped something new in the range, and means it to be used. 0, or as ldma_pager_open. */
int ldma_pager_offer(struct ldma_paged *paged, uint64_t offset, uint64_t length);

/* The device's writes that have begun are done. Which pages of the range were written, by it or by the program, since the
 * last call? Up to count ranges, and how many; *ret_end: the offset up to where the range was looked at. Negative:
 * errno. */
long ldma_pager_sync(struct ldma_paged *paged, uint64_t offset, uint64_t length,
		     struct ldma_pager_range *ret, uint32_t count, uint64_t *ret_end);

#endif
