/* Protection domains: a queue pair reaches the regions of its own domain only. The pointer is the identity; all there is
 * to a domain is how many use it, which any thread may change. */
#ifndef LDMA_PD_H
#define LDMA_PD_H

#include <stdint.h>

struct ldma_pd {
	uint32_t users; /* queue pairs, regions and receive queues */
};

/* NULL without memory. */
struct ldma_pd *ldma_pd_create(void);

/* 0, or -EBUSY while it is used. NULL is accepted. */
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
