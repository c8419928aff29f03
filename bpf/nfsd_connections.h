/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The connections, sessions and times of nfsd.bpf.c: how its programs find them, give them places and add to them. */
#ifndef LDMA_NFSD_CONNECTIONS_H
#define LDMA_NFSD_CONNECTIONS_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/nfsd_kernel.h"
#include "bpf/nfsd_tables.h"

#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_nfsd_connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} connections_by_transport SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_nfsd_session);
} sessions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_sessions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64[2]);
	__type(value, __u32);
} sessions_by_id SEC(".maps");

struct ldma_nfsd_losses losses;

/* Returns the connection of a struct svc_xprt, or NULL. */
static __always_inline struct ldma_nfsd_connection *connection_of(__u64 transport, __u32 *ret_index)
{
	__u32 *known = bpf_map_lookup_elem(&connections_by_transport, &transport);

	if (!known)
		return NULL;
	*ret_index = *known;
	return bpf_map_lookup_elem(&connections, ret_index);
}

/* Reads one of the two addresses of a transport. Returns the IP version; 0: it has none. */
static __always_inline __u32 read_address(const void *storage, __u8 ret_address[16],
					  __u16 *ret_port)
{
	struct {
		__u16 family;
		__be16 port;
		__u8 ipv4[4];
		__u8 ipv6[16];
	} found = {0};

	bpf_probe_read_kernel(&found, sizeof(found), storage);
	*ret_port = bpf_ntohs(found.port);
	if (found.family == FAMILY_IPV4) {
		__builtin_memcpy(ret_address, found.ipv4, 4);
		return 4;
	}
	if (found.family != FAMILY_IPV6)
		return 0;
	__builtin_memcpy(ret_address, found.ipv6, 16);
	return 6;
}

static __always_inline void fill_connection(struct ldma_nfsd_connection *connection,
					    const struct svc_xprt *transport)
{
	connection->transport = (__u64)transport;
	connection->kind = BPF_CORE_READ(transport, xpt_class, xcl_ident);
	read_address(__builtin_preserve_access_index(&transport->xpt_local), connection->server,
		     &connection->server_port);
	connection->ip_version =
		read_address(__builtin_preserve_access_index(&transport->xpt_remote),
			     connection->client, &connection->client_port);
	if (connection->kind == LDMA_NFSD_RDMA) {
		const struct svcxprt_rdma *rdma = (const void *)transport;

		connection->server_qpn = BPF_CORE_READ(rdma, sc_qp, qp_num);
		connection->credits_granted = BPF_CORE_READ(rdma, sc_max_requests);
	}
}

/* Returns the connection of a transport that a call of nfsd came by, and gives a new one a place. NULL: none is free. */
static __always_inline struct ldma_nfsd_connection *
place_connection(const struct svc_xprt *transport, __u32 *ret_index)
{
	__u64 key = (__u64)transport;
	struct ldma_nfsd_connection *connection = connection_of(key, ret_index);

	if (connection)
		return connection;
	if (bpf_map_pop_elem(&free_connections, ret_index))
		goto lost;
	connection = bpf_map_lookup_elem(&connections, ret_index);
	if (!connection)
		goto lost;
	fill_connection(connection, transport);
	if (!bpf_map_update_elem(&connections_by_transport, &key, ret_index, BPF_NOEXIST)) {
		connection->calls.counts.last_ns = bpf_ktime_get_ns();
		connection->began_ns = connection->calls.counts.last_ns;
		return connection;
	}
	/* Another thread has added it meanwhile. */
	bpf_map_push_elem(&free_connections, ret_index, 0);
	connection = connection_of(key, ret_index);
	if (connection)
		return connection;
lost:
	__sync_fetch_and_add(&losses.connections, 1);
	return NULL;
}

/* Returns the index of a session, and gives a new one a place; LDMA_MONITOR_NONE: none is free. */
static __always_inline __u32 place_session(const __u64 id[2])
{
	struct ldma_nfsd_session *session;
	__u32 index, *known = bpf_map_lookup_elem(&sessions_by_id, id);

	if (known)
		return *known;
	if (bpf_map_pop_elem(&free_sessions, &index))
		goto lost;
	session = bpf_map_lookup_elem(&sessions, &index);
	if (!session)
		goto lost;
	__builtin_memcpy(session->id, id, 16);
	session->calls.counts.last_ns = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&sessions_by_id, id, &index, BPF_NOEXIST))
		return index;
	session->calls.counts.last_ns = 0;
	bpf_map_push_elem(&free_sessions, &index, 0);
	known = bpf_map_lookup_elem(&sessions_by_id, id);
	if (known)
		return *known;
lost:
	__sync_fetch_and_add(&losses.sessions, 1);
	return LDMA_MONITOR_NONE;
}

static __always_inline void add_time(struct ldma_nfsd_times *to, __u64 ns)
{
	__u32 step = ldma_monitor_step(ns);
	__u64 line = 1ull << step / LDMA_MONITOR_LINE;

	__sync_fetch_and_add(&to->counts.sum_ns, ns);
	if (ns > to->counts.max_ns)
		to->counts.max_ns = ns;
	if (step < LDMA_MONITOR_STEPS)
		__sync_fetch_and_add(&to->times.steps[step], 1);
	/* The bit is set last: a reader that finds it finds what it stands for. */
	__sync_fetch_and_or(&to->counts.touched, line);
}

#endif
