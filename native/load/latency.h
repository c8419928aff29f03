/* SPDX-License-Identifier: BSD-2-Clause */
/* A log-linear histogram of the times of operations, with 128 buckets to each power of two, so that a value is known
 * within 1/128 of itself. Times from about 18 minutes on share the last bucket; the longest is always known. Its owner
 * keeps any lock. */
#ifndef LDMA_LATENCY_H
#define LDMA_LATENCY_H

#include <stdint.h>

#include "base/log_linear.h"

#define LDMA_LATENCY_BITS 7
#define LDMA_LATENCY_BUCKETS (34 << LDMA_LATENCY_BITS) /* 40 bits */

struct ldma_latency {
	uint64_t count, sum_ns, min_ns, max_ns; /* min_ns: 0 while count is 0 */
	uint64_t buckets[LDMA_LATENCY_BUCKETS];
};

static inline uint32_t ldma_latency_bucket(uint64_t ns)
{
	return ns >> 40 ? LDMA_LATENCY_BUCKETS - 1 : ldma_log_linear_bucket(ns, LDMA_LATENCY_BITS);
}

static inline void ldma_latency_add(struct ldma_latency *latency, uint64_t ns)
{
	if (!latency->count++ || ns < latency->min_ns)
		latency->min_ns = ns;
	if (ns > latency->max_ns)
		latency->max_ns = ns;
	latency->sum_ns += ns;
	latency->buckets[ldma_latency_bucket(ns)]++;
}

/* The time within which that part of all operations ended (0.99: 99 of 100), as the end of a bucket but never more than
 * the longest; 0 if there were none. */
uint64_t ldma_latency_quantile_ns(const struct ldma_latency *latency, double part);

void ldma_latency_merge(struct ldma_latency *into, const struct ldma_latency *from);

#endif
