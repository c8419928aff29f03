/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The calls that threads of the kernel serve, for the programs of nfsd.bpf.c: a thread serves one call at a time, so what is
 * known of a call is kept under its thread. */
#ifndef LDMA_NFSD_CALLS_H
#define LDMA_NFSD_CALLS_H

#include "bpf/nfsd_connections.h"

/* What is known of the call that a thread serves. */
struct served_call {
	__u64 transport;  /* by which `arrived_ns` came */
	__u64 arrived_ns; /* 0: not known */
	__u64 waited_ns;  /* for a thread; a call whose data was fetched has waited twice */
	__u64 fetched_ns; /* how long its data took; 0: there was none */
	__u64 began_ns;   /* 0: the thread serves no call */
	__u64 sent_ns;    /* 0: there was no reply */
	__u64 storage_ns; /* when the access began; 0: there is none */
	__u64 blocked_ns; /* since when it waits for the send queue; 0: it does not */
	__u64 read_bytes, written_bytes;
	__u32 connection, session; /* their places; LDMA_MONITOR_NONE: none */
	__u32 credits_asked;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LDMA_NFSD_THREADS);
	__type(key, __u32);
	__type(value, struct served_call);
} calls SEC(".maps");

static __always_inline struct served_call *own_call(bool is_needed)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct served_call *call = bpf_map_lookup_elem(&calls, &thread), none = {0};

	if (call || !is_needed)
		return call;
	bpf_map_update_elem(&calls, &thread, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&calls, &thread);
}

/* Returns the call that this thread serves for nfsd, with its connection, or NULL. */
static __always_inline struct served_call *nfsd_call(struct ldma_nfsd_connection **ret)
{
	struct served_call *call = own_call(false);

	if (!call || !call->began_ns || call->connection == LDMA_MONITOR_NONE)
		return NULL;
	*ret = bpf_map_lookup_elem(&connections, &call->connection);
	return *ret ? call : NULL;
}

#endif
