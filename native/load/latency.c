/* SPDX-License-Identifier: BSD-2-Clause */
#include "load/latency.h"

#include <math.h>

uint64_t ldma_latency_quantile_ns(const struct ldma_latency *latency, double part)
{
	uint64_t rank = (uint64_t)ceil(part * (double)latency->count), seen = 0;

	if (rank >= latency->count)
		return latency->max_ns;
	for (uint32_t i = 0; i < LDMA_LATENCY_BUCKETS; i++) {
		uint64_t most_ns = ldma_log_linear_least(i + 1, LDMA_LATENCY_BITS) - 1;

		seen += latency->buckets[i];
		if (seen && seen >= rank)
			return i < LDMA_LATENCY_BUCKETS - 1 && most_ns < latency->max_ns
				       ? most_ns
				       : latency->max_ns;
	}
	return latency->max_ns;
}

void ldma_latency_merge(struct ldma_latency *into, const struct ldma_latency *from)
{
	if (!from->count)
		return;
	if (!into->count || from->min_ns < into->min_ns)
		into->min_ns = from->min_ns;
	if (from->max_ns > into->max_ns)
		into->max_ns = from->max_ns;
	into->count += from->count;
	into->sum_ns += from->sum_ns;
	for (uint32_t i = 0; i < LDMA_LATENCY_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}
