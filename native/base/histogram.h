/* SPDX-License-Identifier: BSD-2-Clause */
/* A log-linear histogram of times: eight buckets to each power of two, so a value is known within an eighth of itself.
 * Its owner keeps any lock. */
#ifndef LDMA_HISTOGRAM_H
#define LDMA_HISTOGRAM_H

#include <stdint.h>

#include "base/log_linear.h"

#define LDMA_HISTOGRAM_BITS 3
#define LDMA_HISTOGRAM_BUCKETS 496 /* all of 64 bits */

struct ldma_histogram {
	uint64_t count, sum_ns, max_ns;
	uint64_t buckets[LDMA_HISTOGRAM_BUCKETS];
};

static inline uint32_t ldma_histogram_bucket(uint64_t ns)
{
	return ldma_log_linear_bucket(ns, LDMA_HISTOGRAM_BITS);
}

/* Returns the least value that counts in the bucket. */
static inline uint64_t ldma_histogram_least_ns(uint32_t bucket)
{
	return ldma_log_linear_least(bucket, LDMA_HISTOGRAM_BITS);
}

static inline void ldma_histogram_add(struct ldma_histogram *histogram, uint64_t ns)
{
	histogram->count++;
	histogram->sum_ns += ns;
	if (histogram->max_ns < ns)
		histogram->max_ns = ns;
	histogram->buckets[ldma_histogram_bucket(ns)]++;
}

#endif
