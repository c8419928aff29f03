/* SPDX-License-Identifier: BSD-2-Clause */
/* A log-linear histogram of times, for readers that want to know what happened between two of their looks. It has 16
 * steps to each power of two, so that a value is known within 1/32 of itself, from 16 ns on; times from 34 s on share
 * the last bucket. It only grows, and never wraps: each reader keeps the copy that it saw last and is independent of
 * others, and the newest copy holds all times. Its owner keeps any lock. */
#ifndef LDMA_TIMES_H
#define LDMA_TIMES_H

#include <stdint.h>

#include "base/log_linear.h"

#define LDMA_TIMES_BITS 4
#define LDMA_TIMES_SHIFT 4 /* 16 ns */
#define LDMA_TIMES_BUCKETS (28 << LDMA_TIMES_BITS)

/* Powers of two at which buckets begin, for readers that want fewer buckets: none is split between two bounds. */
#define LDMA_TIMES_BOUNDS 21
#define LDMA_TIMES_BOUND_NS(i) (UINT64_C(8192) << (i)) /* 8.2 us to 8.6 s */

struct ldma_times {
	uint64_t sum_ns, max_ns, count;
	uint64_t buckets[LDMA_TIMES_BUCKETS];
};

struct ldma_times_summary {
	uint64_t count, sum_ns, p50_ns, p99_ns, max_ns;
};

static inline uint32_t ldma_times_bucket(uint64_t ns)
{
	uint64_t units = ns >> LDMA_TIMES_SHIFT;

	return units >> 31 ? LDMA_TIMES_BUCKETS - 1
			   : ldma_log_linear_bucket(units, LDMA_TIMES_BITS);
}

/* Returns the least value that counts in the bucket. */
static inline uint64_t ldma_times_least_ns(uint32_t bucket)
{
	return ldma_log_linear_least(bucket, LDMA_TIMES_BITS) << LDMA_TIMES_SHIFT;
}

static inline void ldma_times_add(struct ldma_times *times, uint64_t ns)
{
	times->count++;
	times->sum_ns += ns;
	if (times->max_ns < ns)
		times->max_ns = ns;
	times->buckets[ldma_times_bucket(ns)]++;
}

/* Returns what was added to `now` since `before`, an earlier copy of it. Quantiles are the middles of their buckets.
 * The longest time is exact if it is the longest of all, else as exact as the others. */
struct ldma_times_summary ldma_times_since(const struct ldma_times *before,
					   const struct ldma_times *now);

/* Counts for each bound the times below it. */
void ldma_times_below(const struct ldma_times *times, uint64_t ret[LDMA_TIMES_BOUNDS]);

#endif
