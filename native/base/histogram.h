/* Log-linear histograms of times: eight buckets to each power of two, so a value is known within an eighth of itself. */
#ifndef LDMA_HISTOGRAM_H
#define LDMA_HISTOGRAM_H

#include <stdint.h>

#define LDMA_HISTOGRAM_BUCKETS 496 /* all of 64 bits */

struct ldma_histogram {
	uint64_t count, sum_ns, max_ns;
	uint64_t buckets[LDMA_HISTOGRAM_BUCKETS];
};

static inline uint32_t ldma_histogram_bucket(uint64_t ns)
{
	uint32_t shift;

	if (ns < 8)
		return (uint32_t)ns;
	shift = 60 - (uint32_t)__builtin_clzll(ns);
	return (shift + 1) * 8 + (uint32_t)(ns >> shift & 7);
}

/* The least value that counts there. */
static inline uint64_t ldma_histogram_least_ns(uint32_t bucket)
{
	return bucket < 8 ? bucket : (UINT64_C(8) + bucket % 8) << (bucket / 8 - 1);
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
