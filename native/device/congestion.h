/* SPDX-License-Identifier: BSD-2-Clause */
/* The congestion window says how many PSNs of a queue pair may be in flight. It doubles with each window that is
 * acknowledged; after a loss it grows by one packet a window. It never exceeds its limit. */
#ifndef LDMA_CONGESTION_H
#define LDMA_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_CONGESTION_MIN 4 /* packets; or the limit, if that is less */

struct ldma_congestion {
	uint32_t packets, limit;
	uint32_t threshold; /* below it the window doubles */
	uint32_t credit;    /* PSNs acknowledged since it last grew by one */
	uint64_t reduced;   /* losses before this PSN have already reduced the window */
};

void ldma_congestion_init(struct ldma_congestion *window, uint32_t limit);

/* Halves the window because of a loss; una .. end are in flight. Losses among what was in flight at the last reduction
 * do not reduce it again. Returns whether the window was halved. */
bool ldma_congestion_halve(struct ldma_congestion *window, uint64_t una, uint64_t end);

/* Sets the window to the minimum after a timeout: nothing is known of the path any more. */
void ldma_congestion_collapse(struct ldma_congestion *window, uint64_t end);

/* Grows the window after count PSNs of in_flight were acknowledged. A window of which less than half was in use has
 * proven nothing and stays. */
static inline void ldma_congestion_grow(struct ldma_congestion *window, uint64_t count,
					uint64_t in_flight)
{
	if (window->packets == window->limit || in_flight < window->packets / 2)
		return;
	if (window->packets < window->threshold) {
		uint32_t room = window->threshold - window->packets;

		window->packets += count < room ? (uint32_t)count : room;
		return;
	}
	window->credit += (uint32_t)count;
	if (window->credit >= window->packets) {
		window->credit = 0;
		window->packets++;
	}
}

#endif
