/* Times of operations: a log-linear histogram with 128 buckets to each power of two, so that a value is known within 1/128
 * of itself. Times from about 18 minutes on share the last bucket; the longest is known in any case. */
#ifndef LDMA_LATENCY_H
#define LDMA_LATENCY_H

#include <stdint.h>

#define LDMA_LATENCY_STEPS 128
#define LDMA_LATENCY_BUCKETS (34 * LDMA_LATENCY_STEPS) /* 40 bits */

struct ldma_latency {
	uint64_t count, sum_ns, min_ns, max_ns; /* min_ns: of one without count, 0 */
	uint64_t buckets[LDMA_LATENCY_BUCKETS];
};

static inline uint32_t ldma_latency_bucket(uint64_t ns)
{
	uint32_t shift;

	if (ns < LDMA_LATENCY_STEPS)
		return (uint32_t)ns;
	if (ns >> 40)
		return LDMA_LATENCY_BUCKETS - 1;
	shift = 56 - (uint32_t)__builtin_clzll(ns);
	return (shift + 1) * LDMA_LATENCY_STEPS + (uint32_t)(ns >> shift) % LDMA_LATENCY_STEPS;
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

/* The most that a value which counts there can be. */
uint64_t ldma_latency_most_ns(uint32_t bucket);

/* The time within which that part of all operations ended (0.99: 99 of 100), as the end of a bucket but never more than
 * the longest; 0 if there were none. */
uint64_t ldma_latency_quantile_ns(const struct ldma_latency *latency, double part);

void ldma_latency_merge(struct ldma_latency *into, const struct ldma_latency *from);

#endif
