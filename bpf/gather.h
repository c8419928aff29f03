/* SPDX-License-Identifier: BSD-2-Clause */
/* Lets a reader of a ring pause, so that it reads many records at once. */
#ifndef LDMA_GATHER_H
#define LDMA_GATHER_H

#include <stdint.h>
#include <time.h>

#define LDMA_GATHER_NS 1000000
#define LDMA_GATHER_RING_BYTES (1u << 20)

/* Lets a little gather before a ring that was drained is read again: reading while the producer writes costs both of
 * them cache misses. A small ring cannot wait. */
static inline void ldma_let_gather(int64_t drained_ns, uint64_t ring_bytes, int64_t now_ns)
{
	int64_t left_ns = drained_ns + LDMA_GATHER_NS - now_ns;
	struct timespec pause = {.tv_nsec = left_ns};

	if (left_ns > 0 && left_ns <= LDMA_GATHER_NS && ring_bytes >= LDMA_GATHER_RING_BYTES)
		nanosleep(&pause, NULL);
}

#endif
