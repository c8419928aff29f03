/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the monotonic clock. */
#ifndef LDMA_MONOTONIC_H
#define LDMA_MONOTONIC_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ldma_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
