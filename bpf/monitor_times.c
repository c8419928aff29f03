/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/monitor_times.h"

#include <string.h>

#include "base/log_linear.h"

/* Returns the middle of the step that holds the nth of the sorted times; n counts from 1. */
static uint64_t nth_ns(const uint32_t *steps, uint64_t touched, uint64_t n)
{
	uint64_t sum = 0;

	for (; touched; touched &= touched - 1) {
		uint32_t first = (uint32_t)__builtin_ctzll(touched) * LDMA_MONITOR_LINE;

		for (uint32_t i = first; i < first + LDMA_MONITOR_LINE; i++) {
			sum += steps[i];
			if (sum >= n)
				return ldma_log_linear_middle_ns(i, LDMA_MONITOR_STEP_BITS,
								 LDMA_MONITOR_UNIT_BITS);
		}
	}
	return 0;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
	return value < most ? value : most;
}

/* Writes what was added to one line of steps, and returns its sum. */
static uint32_t look_at_line(const uint32_t *line, uint32_t *before, uint32_t *ret)
{
	uint32_t now[LDMA_MONITOR_LINE], sum = 0;

	/* Copies the line at once: atomic loads would come one by one. */
	memcpy(now, line, sizeof(now));
	for (uint32_t i = 0; i < LDMA_MONITOR_LINE; i++) {
		ret[i] = now[i] - before[i];
		sum += ret[i];
	}
	memcpy(before, now, sizeof(now));
	return sum;
}

void monitor_look_at_times(struct ldma_monitor_counts *counts, struct ldma_monitor_times *times,
			   struct monitor_times_before *before, struct monitor_times *ret)
{
	uint64_t touched = monitor_load(&counts->touched);
	uint32_t steps[LDMA_MONITOR_STEPS]; /* of lines that were touched */

	*ret = (struct monitor_times){0};
	if (!touched)
		return;
	touched = __atomic_exchange_n((uint64_t *)&counts->touched, 0, __ATOMIC_ACQ_REL);
	for (uint64_t left = touched; left; left &= left - 1) {
		uint32_t first = (uint32_t)__builtin_ctzll(left) * LDMA_MONITOR_LINE;

		ret->count +=
			look_at_line(times->steps + first, before->steps + first, steps + first);
	}
	if (!ret->count)
		return;
	ret->sum_ns = monitor_added(&counts->sum_ns, &before->sum_ns);
	ret->max_ns = __atomic_exchange_n((uint64_t *)&counts->max_ns, 0, __ATOMIC_RELAXED);
	ret->p50_ns = at_most(nth_ns(steps, touched, (ret->count + 1) / 2), ret->max_ns);
	ret->p99_ns = at_most(nth_ns(steps, touched, ret->count - ret->count / 100), ret->max_ns);
}
