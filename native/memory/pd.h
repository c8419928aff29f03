/* SPDX-License-Identifier: BSD-2-Clause */
/* A protection domain: a queue pair reaches the regions of its own domain only. The pointer is its identity; its only
 * content is the number of its users, which any thread may change. */
#ifndef LDMA_PD_H
#define LDMA_PD_H

#include <stdint.h>

struct ldma_pd {
	uint32_t users; /* queue pairs, regions and receive queues */
};

/* Returns NULL without memory. */
struct ldma_pd *ldma_pd_create(void);

/* Returns 0, or -EBUSY while it is used. NULL is accepted. */
int ldma_pd_destroy(struct ldma_pd *pd);

static inline void ldma_pd_get(struct ldma_pd *pd)
{
	__atomic_add_fetch(&pd->users, 1, __ATOMIC_RELAXED);
}

static inline void ldma_pd_put(struct ldma_pd *pd)
{
	__atomic_sub_fetch(&pd->users, 1, __ATOMIC_RELEASE);
}

#endif
