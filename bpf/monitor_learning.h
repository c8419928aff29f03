/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the monitor learns of connections that were made before it: from their calls and replies.
 *
 * A packet names only the queue pair that it goes to. So a call tells the server's queue pair, its reply the client's,
 * and what both carry joins them: addresses, XID and, from NFSv4.1 on, session, slot and sequence number. Two exchanges
 * with a SEQUENCE that worked are enough. Without sessions more have to agree, and an XID that two queue pairs use at a
 * time tells nothing.
 *
 * A peer may forge what it sends, so call and reply have to pass one interface in opposite ways: one of the two came
 * from this side. All tables are bounded, and forget what was used longest ago: forged calls may delay learning. */
#ifndef LDMA_MONITOR_LEARNING_H
#define LDMA_MONITOR_LEARNING_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/monitor_connections.h"
#include "bpf/monitor_message.h"
#include "bpf/monitor_scratch.h"
#include "bpf/monitor_tables.h"

#define STRANGE_CALLS_MOST 8192
#define PAIRS_MOST 1024
#define POINTS_ENOUGH 4 /* of exchanges that agree */
#define POINTS_WITH_SESSION 2
#define STALE_NS 30000000000ull

const volatile bool learns;

/* A call to a queue pair of no connection. */
struct strange_call {
	__u64 start_ns;
	__u32 qpn; /* the server's; LDMA_MONITOR_NONE: several use this XID */
	__u32 ifindex;
	__u32 is_leaving;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STRANGE_CALLS_MOST);
	__type(key, struct strange_key);
	__type(value, struct strange_call);
} strange_calls SEC(".maps");

/* Two queue pairs that may be a connection. */
struct pair {
	__u32 points;
	__u32 was_lost; /* there was no room for it */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PAIRS_MOST);
	__type(key, struct pair_key);
	__type(value, struct pair);
} pairs SEC(".maps");

/* Queue pairs of no connection to which this side sends RPC-over-RDMA, and when it did so last. What only arrives is
 * not kept, since a peer can make that up. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LDMA_MONITOR_STRANGERS);
	__type(key, struct ldma_monitor_key);
	__type(value, __u64);
} strangers SEC(".maps");

static __always_inline void name_place(struct scratch *scratch, const __u8 *from, const __u8 *to,
				       __u32 qpn)
{
	__builtin_memcpy(scratch->key.from, from, 16);
	__builtin_memcpy(scratch->key.to, to, 16);
	scratch->key.qpn = qpn;
}

/* Makes the connection of the pair in the scratch memory. */
static __always_inline void learn(struct scratch *scratch, struct pair *pair, __u32 ip_version)
{
	const struct pair_key *ends = &scratch->pair;
	struct ldma_monitor_place place = {.way = LDMA_MONITOR_TO_SERVER};
	struct ldma_monitor_connection *connection;

	if (bpf_map_pop_elem(&free_connections, &place.connection)) {
		if (!pair->was_lost)
			__sync_fetch_and_add(&losses.connections, 1);
		pair->was_lost = 1;
		return;
	}
	connection = bpf_map_lookup_elem(&connections, &place.connection);
	name_place(scratch, ends->client, ends->server, ends->server_qpn);
	if (!connection || bpf_map_update_elem(&places, &scratch->key, &place, BPF_NOEXIST)) {
		/* Another CPU was quicker. */
		bpf_map_push_elem(&free_connections, &place.connection, 0);
		return;
	}
	__builtin_memcpy(connection->server, ends->server, 16);
	__builtin_memcpy(connection->client, ends->client, 16);
	connection->server_qpn = ends->server_qpn;
	connection->client_qpn = ends->client_qpn;
	connection->ip_version = ip_version;
	place.way = LDMA_MONITOR_TO_CLIENT;
	name_place(scratch, ends->server, ends->client, ends->client_qpn);
	bpf_map_update_elem(&places, &scratch->key, &place, BPF_ANY);
	__sync_fetch_and_add(&generation, 1);
	connection->counts.last_ns = connection->learnt_ns = bpf_ktime_get_ns();
	connection->began_ns = connection->learnt_ns;
}

/* Counts an exchange of the pair in the scratch memory; enough of them make a connection. */
static __always_inline void on_exchange(const struct walk *walk, struct scratch *scratch,
					__u32 points)
{
	struct pair *pair, none = {0};

	pair = bpf_map_lookup_elem(&pairs, &scratch->pair);
	if (!pair) {
		bpf_map_update_elem(&pairs, &scratch->pair, &none, BPF_NOEXIST);
		pair = bpf_map_lookup_elem(&pairs, &scratch->pair);
		if (!pair)
			return;
	}
	if (__sync_fetch_and_add(&pair->points, points) + points >= POINTS_ENOUGH)
		learn(scratch, pair, walk->ip_version);
}

static __always_inline void note_call(const struct walk *walk, struct scratch *scratch, bool has_id,
				      __u32 ifindex, bool is_leaving)
{
	struct strange_call call = {
		.start_ns = bpf_ktime_get_ns(),
		.qpn = walk->key.qpn,
		.ifindex = ifindex,
		.is_leaving = is_leaving,
	};
	const struct strange_call *known;

	__builtin_memcpy(scratch->strange.client, walk->key.from, 16);
	__builtin_memcpy(scratch->strange.server, walk->key.to, 16);
	known = has_id ? NULL : bpf_map_lookup_elem(&strange_calls, &scratch->strange);
	if (known && known->qpn != call.qpn && call.start_ns - known->start_ns < STALE_NS)
		call.qpn = LDMA_MONITOR_NONE;
	bpf_map_update_elem(&strange_calls, &scratch->strange, &call, BPF_ANY);
}

static __always_inline void note_reply(const struct walk *walk, struct scratch *scratch,
				       bool has_id, __u32 ifindex, bool is_leaving)
{
	const struct strange_call *call;

	__builtin_memcpy(scratch->strange.client, walk->key.to, 16);
	__builtin_memcpy(scratch->strange.server, walk->key.from, 16);
	call = bpf_map_lookup_elem(&strange_calls, &scratch->strange);
	if (!call || call->qpn == LDMA_MONITOR_NONE || call->ifindex != ifindex ||
	    (ifindex != LOOPBACK && call->is_leaving == is_leaving))
		return;
	__builtin_memcpy(scratch->pair.client, walk->key.to, 16);
	__builtin_memcpy(scratch->pair.server, walk->key.from, 16);
	scratch->pair.client_qpn = walk->key.qpn;
	scratch->pair.server_qpn = call->qpn;
	bpf_map_delete_elem(&strange_calls, &scratch->strange);
	on_exchange(walk, scratch, has_id ? POINTS_WITH_SESSION : 1);
}

static __always_inline void name_strange(struct scratch *scratch, __u32 xid, const __u64 id[2],
					 const __u32 slot[2])
{
	scratch->strange.id[0] = id[0];
	scratch->strange.id[1] = id[1];
	scratch->strange.slot[0] = slot[0];
	scratch->strange.slot[1] = slot[1];
	scratch->strange.xid = xid;
}

/* Takes a message to a queue pair of no connection. */
static __always_inline void learn_from(const struct walk *walk, struct scratch *scratch, __u32 at,
				       __u32 end, __u32 ifindex, bool is_leaving)
{
	struct message message = {.window = scratch->window, .at = at, .end = end};
	struct seen_reply reply = {0};
	struct seen_call call = {0};
	struct rpcrdma header;
	int has_message = read_header(&message, &header);
	__u64 now_ns;

	if (has_message < 0)
		return;
	if (is_leaving || ifindex == LOOPBACK) {
		now_ns = bpf_ktime_get_ns();
		bpf_map_update_elem(&strangers, &walk->key, &now_ns, BPF_ANY);
	}
	if (!has_message || !has(&message, 24))
		return;
	if (peek(&message, 4) == RPC_CALL) {
		if (!has(&message, 32) || peek(&message, 12) != LDMA_NFS_PROGRAM)
			return;
		read_call(&message, &call);
		name_strange(scratch, header.xid, call.id, call.slot);
		note_call(walk, scratch, call.has_id, ifindex, is_leaving);
	} else if (read_reply(&message, true, &reply)) {
		name_strange(scratch, header.xid, reply.id, reply.slot);
		note_reply(walk, scratch, reply.has_id, ifindex, is_leaving);
	}
}

#endif
