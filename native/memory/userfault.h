/* SPDX-License-Identifier: BSD-2-Clause */
/* A userfaultfd in asynchronous write-protect mode: by it the kernel reports what happens to the program's mappings,
 * and which pages were written. The pager is its only user. */
#ifndef LDMA_USERFAULT_H
#define LDMA_USERFAULT_H

#include <stdbool.h>
#include <stdint.h>

struct ldma_userfault {
	int fd, pagemap_fd; /* pagemap_fd may be the negative errno with which opening it failed */
};

enum ldma_userfault_kind {
	LDMA_USERFAULT_REMOVE, /* the content is about to go */
	LDMA_USERFAULT_UNMAP,  /* the mapping is gone */
	LDMA_USERFAULT_REMAP,  /* the mapping has moved to another place */
};

struct ldma_userfault_event {
	enum ldma_userfault_kind kind;
	uintptr_t start, end, to;
};

struct ldma_written {
	uint64_t start, end, categories; /* as the kernel's struct page_region */
};

/* Returns 0, -ENOSYS (this kernel does not have it) or another negative errno. */
int ldma_userfault_open(struct ldma_userfault *userfault);
void ldma_userfault_close(struct ldma_userfault *userfault);

/* Watch a range of whole pages, or end that. ldma_userfault_register returns 0 or a negative errno. */
int ldma_userfault_register(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end);
void ldma_userfault_unregister(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end);

/* Takes up to 16 events; the threads that caused them go on. Returns how many there were. */
int ldma_userfault_read(struct ldma_userfault *userfault, struct ldma_userfault_event *ret,
			uint32_t count);

/* Writes to ret the pages that were written since the last call, in up to count runs, and to *ret_end where it stopped
 * looking. Returns how many runs, or a negative errno. */
long ldma_userfault_written(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end,
			    struct ldma_written *ret, uint32_t count, uintptr_t *ret_end);

#endif
