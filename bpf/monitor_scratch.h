/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What each CPU has for itself: a window for the part of a packet that it reads, and the places that it found lately,
 * since a lookup in a map of all CPUs takes longer than a comparison. */
#ifndef LDMA_MONITOR_SCRATCH_H
#define LDMA_MONITOR_SCRATCH_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "bpf/monitor_tables.h"

#define WINDOW_BYTES 4096 /* a power of two: a mask keeps any place within */
#define PEEK_MOST 64      /* how far ahead of any place in it may be read */
#define RECENT_PLACES 64
#define RECENT_SESSIONS 256

struct recent_place {
	struct ldma_monitor_key key;
	__u32 generation;
	struct ldma_monitor_place place;
};

struct recent_session {
	__u64 id[2];
	__u32 generation;
	__u32 index;
};

struct scratch {
	/* One segment of a packet, or as many as fit, since each copy takes time. */
	__u8 window[WINDOW_BYTES + PEEK_MOST];
	struct recent_place places[RECENT_PLACES];
	struct recent_session sessions[RECENT_SESSIONS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *find_scratch(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&scratches, &key);
}

#endif
