/* SPDX-License-Identifier: BSD-2-Clause */
/* What was added since the look before to counters and times that BPF programs add to (monitor_tables.h). */
#ifndef LDMA_MONITOR_TIMES_H
#define LDMA_MONITOR_TIMES_H

#include <stdint.h>

#include "bpf/monitor_tables.h"

/* The times of what ended since the look before. */
struct monitor_times {
	uint64_t count, sum_ns, p50_ns, p99_ns, max_ns;
};

/* The values at the look before. */
struct monitor_times_before {
	uint64_t sum_ns;
	uint32_t steps[LDMA_MONITOR_STEPS];
};

static inline uint64_t monitor_load(const __u64 *value)
{
	return __atomic_load_n((const uint64_t *)value, __ATOMIC_RELAXED);
}

/* Returns what was added to a counter since the look before. */
static inline uint64_t monitor_added(const __u64 *counter, uint64_t *before)
{
	uint64_t now = monitor_load(counter), ret = now - *before;

	*before = now;
	return ret;
}

/* Sums up the times that were added since the look before. Only one reader may look at them. */
void monitor_look_at_times(struct ldma_monitor_counts *counts, struct ldma_monitor_times *times,
			   struct monitor_times_before *before, struct monitor_times *ret);

#endif
