/* What each CPU has for itself: room for what is looked at, and what it found lately, since looking into a map of all CPUs
 * takes longer than comparing. */
#ifndef LDMA_MONITOR_SCRATCH_H
#define LDMA_MONITOR_SCRATCH_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "monitor_tables.h"

#define WINDOW_BYTES 4096 /* a power of two: any place within is found by a mask */
#define PEEK_MOST 64      /* how far ahead of any place there may be read */
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
	/* Of a packet: one segment, or as many as fit, since each copy of a part takes its time. */
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
