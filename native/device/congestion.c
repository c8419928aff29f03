/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/congestion.h"

#define START_MIN 8

static uint32_t at_least(const struct ldma_congestion *window, uint32_t packets, uint32_t least)
{
	if (packets < least)
		packets = least;
	return packets < window->limit ? packets : window->limit;
}

void ldma_congestion_init(struct ldma_congestion *window, uint32_t limit)
{
	*window = (struct ldma_congestion){.limit = limit, .threshold = limit};
	window->packets = at_least(window, limit / 4, START_MIN);
}

bool ldma_congestion_halve(struct ldma_congestion *window, uint64_t una, uint64_t end)
{
	if (una < window->reduced)
		return false;
	window->packets = at_least(window, window->packets / 2, LDMA_CONGESTION_MIN);
	window->threshold = window->packets;
	window->credit = 0;
	window->reduced = end;
	return true;
}

void ldma_congestion_collapse(struct ldma_congestion *window, uint64_t end)
{
	window->threshold = at_least(window, window->packets / 2, LDMA_CONGESTION_MIN);
	window->packets = at_least(window, 0, LDMA_CONGESTION_MIN);
	window->credit = 0;
	window->reduced = end;
}
