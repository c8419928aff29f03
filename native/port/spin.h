/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a thread looks for packets before it sleeps. Looking is worth it while packets come soon. Where they do not,
 * or where their sender waits for this very processor, it only delays. So a look that found nothing halves the next
 * ones, a look that found something makes them longer again, and now and then a long look tries anew. Threads may share
 * one. */
#ifndef LDMA_SPIN_H
#define LDMA_SPIN_H

#include <stdint.h>

#define LDMA_SPIN_FIXED_NS UINT64_C(1000000) /* a limit above this is always used in full */

struct ldma_spin {
	uint64_t ns;     /* the next look; 0: no look was taken yet */
	uint32_t losses; /* in a row */
};

static inline uint64_t ldma_spin_ns(const struct ldma_spin *spin, uint64_t limit_ns)
{
	uint64_t ns = __atomic_load_n(&spin->ns, __ATOMIC_RELAXED);

	return limit_ns > LDMA_SPIN_FIXED_NS || !ns || ns > limit_ns ? limit_ns : ns;
}

/* Takes note that a look found something after after_ns. */
static inline void ldma_spin_won(struct ldma_spin *spin, uint64_t after_ns, uint64_t limit_ns)
{
	uint64_t ns = ldma_spin_ns(spin, limit_ns);

	__atomic_store_n(&spin->losses, 0, __ATOMIC_RELAXED);
	if (ns < 4 * after_ns)
		__atomic_store_n(&spin->ns, 4 * after_ns, __ATOMIC_RELAXED);
}

static inline void ldma_spin_lost(struct ldma_spin *spin, uint64_t limit_ns)
{
	uint64_t ns = ldma_spin_ns(spin, limit_ns) / 2, least_ns = limit_ns / 16 + 1;
	uint32_t losses = __atomic_add_fetch(&spin->losses, 1, __ATOMIC_RELAXED);

	if (losses % 32 == 0)
		ns = limit_ns;
	else if (ns < least_ns)
		ns = least_ns;
	__atomic_store_n(&spin->ns, ns, __ATOMIC_RELAXED);
}

#endif
