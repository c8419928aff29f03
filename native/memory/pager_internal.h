/* SPDX-License-Identifier: BSD-2-Clause */
/* Declares what the files of the pager share: the pager of the process and its watched regions. */
#ifndef LDMA_PAGER_INTERNAL_H
#define LDMA_PAGER_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "memory/pager.h"
#include "memory/userfault.h"

/* A region whose memory is watched, in whole pages from start to end. */
struct ldma_watched {
	struct ldma_paged paged;
	struct ldma_pager *pager;
	struct ldma_watched *next;
	uintptr_t start, end;
	uint32_t users; /* its owner, and threads that work for it */
	bool is_closed;
};

struct ldma_pager {
	struct ldma_paging paging;
	struct ldma_userfault userfault;
	/* The gate guards everything below and the tables of all regions: a page may be in several. */
	pthread_mutex_t gate;
	pthread_cond_t has_fault;
	struct ldma_watched *regions;
	bool is_stopping;
	uint32_t users; /* the process, the threads and the regions */
	int stop_fd;
	pid_t pid;
};

/* The two threads. */
void *ldma_pager_watch(void *pager);
void *ldma_pager_fill(void *pager);

void ldma_pager_put(struct ldma_pager *pager);
void ldma_pager_unwatch(struct ldma_pager *pager, uintptr_t start, uintptr_t end);

/* Hold and release a region for a thread that works for it outside of the gate, where it may be closed meanwhile.
 * ldma_watched_put frees memory: it may not be called in the gate. */
void ldma_watched_get(struct ldma_watched *watched);
void ldma_watched_put(struct ldma_watched *watched);

/* Brings in the pages of a fault. Returns 0 or a negative errno; *ret_filled is how many it brought in. */
int ldma_fault_populate(const struct ldma_fault *fault, uint32_t *ret_filled);

/* Returns an eventfd, or a negative errno. */
int ldma_stop_descriptor(void);

#endif
