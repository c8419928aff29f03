/* SPDX-License-Identifier: BSD-2-Clause */
/* The offset from the monotonic clock, which records have, to the wall clock, which people and files want. */
#ifndef LDMA_WALL_CLOCK_H
#define LDMA_WALL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t ldma_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Returns CLOCK_REALTIME less CLOCK_MONOTONIC: the best of 16 readings, since a reading may be interrupted between the
 * two clocks. */
static inline int64_t ldma_wall_offset_ns(void)
{
	int64_t best = 0, shortest = INT64_MAX;

	for (int i = 0; i < 16; i++) {
		int64_t before = ldma_clock_ns(CLOCK_MONOTONIC);
		int64_t wall = ldma_clock_ns(CLOCK_REALTIME);
		int64_t took = ldma_clock_ns(CLOCK_MONOTONIC) - before;

		if (took < shortest) {
			shortest = took;
			best = wall - before - took / 2;
		}
	}
	return best;
}

#endif
