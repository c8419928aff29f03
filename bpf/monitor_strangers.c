/* SPDX-License-Identifier: BSD-2-Clause */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <string.h>

#include "bpf/monitor_internal.h"
#include "bpf/wall_clock.h"
#include "monitor.skel.h"

/* Queue pairs to one address from another. */
struct crowd {
	uint8_t from[16], to[16];
	uint32_t count;
};

static bool is_between(const struct crowd *crowd, const uint8_t *from, const uint8_t *to)
{
	return !memcmp(crowd->from, from, 16) && !memcmp(crowd->to, to, 16);
}

static struct crowd *find_crowd(struct crowd *crowds, uint32_t count, const uint8_t *from,
				const uint8_t *to)
{
	for (uint32_t i = 0; i < count; i++) {
		if (is_between(&crowds[i], from, to))
			return &crowds[i];
	}
	return NULL;
}

/* Returns whether the queue pair was in use lately, and belongs to no connection. */
static bool is_strange(const struct monitor *monitor, const struct ldma_monitor_key *key,
		       uint64_t since_ns)
{
	const struct monitor_bpf *bpf = monitor->bpf;
	struct ldma_monitor_place place;
	uint64_t last_ns;

	return !bpf_map_lookup_elem(bpf_map__fd(bpf->maps.strangers), key, &last_ns) &&
	       last_ns >= since_ns &&
	       bpf_map_lookup_elem(bpf_map__fd(bpf->maps.places), key, &place) != 0;
}

static uint32_t gather(const struct monitor *monitor, uint64_t since_ns, struct crowd *crowds)
{
	int strangers = bpf_map__fd(monitor->bpf->maps.strangers);
	struct ldma_monitor_key key, *before = NULL;
	uint32_t count = 0;

	/* A table that changes meanwhile may begin again: the number of steps is bounded. */
	for (uint32_t i = 0; i < LDMA_MONITOR_STRANGERS; i++) {
		struct crowd *crowd;

		if (bpf_map_get_next_key(strangers, before, &key))
			break;
		before = &key;
		if (!is_strange(monitor, &key, since_ns))
			continue;
		crowd = find_crowd(crowds, count, key.from, key.to);
		if (!crowd) {
			crowd = &crowds[count++];
			memcpy(crowd->from, key.from, 16);
			memcpy(crowd->to, key.to, 16);
			crowd->count = 0;
		}
		crowd->count++;
	}
	return count;
}

uint32_t monitor_strangers(const struct monitor *monitor, uint64_t recent_ns)
{
	struct crowd crowds[LDMA_MONITOR_STRANGERS];
	uint64_t now_ns = (uint64_t)ldma_clock_ns(CLOCK_MONOTONIC);
	uint32_t ret = 0, count;

	count = gather(monitor, now_ns > recent_ns ? now_ns - recent_ns : 0, crowds);
	for (uint32_t i = 0; i < count; i++) {
		const struct crowd *one = &crowds[i], *other;

		if (!memcmp(one->from, one->to, 16)) { /* both ends of each have this address */
			ret += (one->count + 1) / 2;
			continue;
		}
		other = find_crowd(crowds, count, one->to, one->from);
		/* Where both ways are seen, as on lo, a connection has a queue pair in each. */
		if (!other || one->count > other->count ||
		    (one->count == other->count && one < other))
			ret += one->count;
	}
	return ret;
}
