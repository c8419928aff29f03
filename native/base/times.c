/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/times.h"

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t middle_ns(uint32_t bucket)
{
	return ldma_log_linear_middle_ns(bucket, LDMA_TIMES_BITS, LDMA_TIMES_SHIFT);
}

struct ldma_times_summary ldma_times_since(const struct ldma_times *before,
					   const struct ldma_times *now)
{
	uint64_t count = now->count - before->count, seen = 0;
	uint32_t last = 0;
	/* The ranks of the quantiles: of 100 values, the 50th and the 99th. */
	uint64_t middle = (count + 1) / 2, late = (count * 99 + 99) / 100;
	struct ldma_times_summary ret = {.count = count, .sum_ns = now->sum_ns - before->sum_ns};

	if (!count)
		return (struct ldma_times_summary){0};
	for (uint32_t i = 0; i < LDMA_TIMES_BUCKETS && seen < count; i++) {
		uint64_t here = now->buckets[i] - before->buckets[i];

		if (!here)
			continue;
		last = i;
		if (seen < middle && seen + here >= middle)
			ret.p50_ns = middle_ns(i);
		if (seen < late && seen + here >= late)
			ret.p99_ns = middle_ns(i);
		seen += here;
	}
	ret.max_ns = now->max_ns > before->max_ns
			     ? now->max_ns
			     : at_most(now->max_ns, ldma_times_least_ns(last + 1));
	ret.p50_ns = at_most(ret.p50_ns, ret.max_ns);
	ret.p99_ns = at_most(ret.p99_ns, ret.max_ns);
	return ret;
}

void ldma_times_below(const struct ldma_times *times, uint64_t ret[LDMA_TIMES_BOUNDS])
{
	uint64_t seen = 0;
	uint32_t next = 0;

	for (uint32_t i = 0; i < LDMA_TIMES_BOUNDS; i++) {
		for (; next < ldma_times_bucket(LDMA_TIMES_BOUND_NS(i)); next++)
			seen += times->buckets[next];
		ret[i] = seen;
	}
}
