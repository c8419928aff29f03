/* What the kernel says and knows about the program's mappings: userfaultfd in asynchronous write-protect mode. */
#ifndef LDMA_USERFAULT_H
#define LDMA_USERFAULT_H

#include <stdbool.h>
#include <stdint.h>

struct ldma_userfault {
	int fd, pagemap_fd; /* the latter may be the errno that opening it had */
};

enum ldma_userfault_kind {
	LDMA_USERFAULT_REMOVE, /* the content is about to go */
	LDMA_USERFAULT_UNMAP,  /* the mapping has gone */
	LDMA_USERFAULT_REMAP,  /* it has gone to another place */
};

struct ldma_userfault_event {
	enum ldma_userfault_kind kind;
	uintptr_t start, end, to;
};

struct ldma_written {
	uint64_t start, end, categories; /* as the kernel's struct page_region */
};

/* 0, -ENOSYS: not in this kernel; or another negative errno. */
int ldma_userfault_open(struct ldma_userfault *userfault);
void ldma_userfault_close(struct ldma_userfault *userfault);

/* Whole pages. 0, or a negative errno. */
int ldma_userfault_register(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end);
void ldma_userfault_unregister(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end);

/* Takes up to 16 events; who caused them goes on. Returns how many there were. */
int ldma_userfault_read(struct ldma_userfault *userfault, struct ldma_userfault_event *ret,
			uint32_t count);

/* Which pages were written since the last call, in up to count runs. Returns how many runs, or a negative errno. */
long ldma_userfault_written(struct ldma_userfault *userfault, uintptr_t start, uintptr_t end,
			    struct ldma_written *ret, uint32_t count, uintptr_t *ret_end);

#endif
