/* Times of what happens often, for those who ask what happened between two looks: a log-linear histogram with 16 steps to
 * each power of two, so that a value is known within 1/32 of itself, from 16 ns on; times from 34 s on share the last
 * bucket. It only grows, and never wraps, so each who looks keeps what it saw last and needs nothing from the others; who
 * wants all of it needs nothing but the last look. The lock is its owner's. */
#ifndef LDMA_TIMES_H
#define LDMA_TIMES_H

#include <stdint.h>

#define LDMA_TIMES_STEPS 16
#define LDMA_TIMES_SHIFT 4 /* 16 ns */
#define LDMA_TIMES_BUCKETS (28 * LDMA_TIMES_STEPS)

/* Powers of two, at which buckets begin: for those who want fewer of them, none of which may be split. */
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
	uint32_t shift;

	if (units < LDMA_TIMES_STEPS)
		return (uint32_t)units;
	if (units >> 31)
		return LDMA_TIMES_BUCKETS - 1;
	shift = 59 - (uint32_t)__builtin_clzll(units);
	return (shift + 1) * LDMA_TIMES_STEPS + (uint32_t)(units >> shift) % LDMA_TIMES_STEPS;
}

/* The least value that counts there. */
static inline uint64_t ldma_times_least_ns(uint32_t bucket)
{
	uint64_t step = bucket % LDMA_TIMES_STEPS;

	if (bucket < LDMA_TIMES_STEPS)
		return step << LDMA_TIMES_SHIFT;
	return (LDMA_TIMES_STEPS + step) << (bucket / LDMA_TIMES_STEPS - 1 + LDMA_TIMES_SHIFT);
}

static inline void ldma_times_add(struct ldma_times *times, uint64_t ns)
{
	times->count++;
	times->sum_ns += ns;
	if (times->max_ns < ns)
		times->max_ns = ns;
	times->buckets[ldma_times_bucket(ns)]++;
}

/* What was added since `before` was taken of the same. Quantiles are the middles of their buckets. The longest is exact if
 * it is the longest of all, else known as well as the others. */
struct ldma_times_summary ldma_times_since(const struct ldma_times *before,
					   const struct ldma_times *now);

/* How many took less than each bound. */
void ldma_times_below(const struct ldma_times *times, uint64_t ret[LDMA_TIMES_BOUNDS]);

#endif
