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

/* A call as its reply names it, too: without a session, id and slot are 0. */
struct strange_key {
	__u8 client[16], server[16];
	__u64 id[2];
	__u32 slot[2]; /* sequence number, slot */
	__u32 xid;
	__u32 unused;
};

struct pair_key {
	__u8 client[16], server[16];
	__u32 client_qpn, server_qpn;
};

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

/* Memory of each CPU for what would fill the stack: a message, and keys of the tables above. */
struct learning {
	struct seen_call call;
	struct seen_reply reply;
	struct strange_key strange;
	struct pair_key pair;
	struct ldma_monitor_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct learning);
} learnings SEC(".maps");

/* What a message to a queue pair of no connection is. */
enum strange_kind { STRANGE_NONE, STRANGE_OTHER, STRANGE_CALL, STRANGE_REPLY };

static __always_inline struct learning *find_learning(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&learnings, &key);
}

static __always_inline void name_place(struct learning *learning, const __u8 *from, const __u8 *to,
				       __u32 qpn)
{
	__builtin_memcpy(learning->key.from, from, 16);
	__builtin_memcpy(learning->key.to, to, 16);
	learning->key.qpn = qpn;
}

/* Makes the connection of the pair in the memory of learning. */
static __always_inline void learn(struct learning *learning, struct pair *pair, __u32 ip_version)
{
	const struct pair_key *ends = &learning->pair;
	struct ldma_monitor_place place = {.way = LDMA_MONITOR_TO_SERVER};
	struct ldma_monitor_connection *connection;

	if (bpf_map_pop_elem(&free_connections, &place.connection)) {
		if (!pair->was_lost)
			__sync_fetch_and_add(&losses.connections, 1);
		pair->was_lost = 1;
		return;
	}
	connection = bpf_map_lookup_elem(&connections, &place.connection);
	name_place(learning, ends->client, ends->server, ends->server_qpn);
	if (!connection || bpf_map_update_elem(&places, &learning->key, &place, BPF_NOEXIST)) {
		/* Another CPU was quicker. */
		bpf_map_push_elem(&free_connections, &place.connection, 0);
		return;
	}
	__builtin_memcpy(connection->server, ends->server, 16);
	__builtin_memcpy(connection->client, ends->client, 16);
	connection->server_qpn = ends->server_qpn;
	connection->client_qpn = ends->client_qpn;
	connection->ip_version = ip_version;
	/* Before replies find it: those to calls that were under way are told by it. */
	connection->counts.last_ns = connection->learnt_ns = bpf_ktime_get_ns();
	place.way = LDMA_MONITOR_TO_CLIENT;
	name_place(learning, ends->server, ends->client, ends->client_qpn);
	bpf_map_update_elem(&places, &learning->key, &place, BPF_ANY);
	__sync_fetch_and_add(&generation, 1);
	connection->began_ns = connection->learnt_ns;
}

/* Counts an exchange of the pair in the memory of learning; enough of them make a connection. */
static __always_inline void on_exchange(const struct walk *walk, struct learning *learning,
					__u32 points)
{
	struct pair *pair, none = {0};

	pair = bpf_map_lookup_elem(&pairs, &learning->pair);
	if (!pair) {
		bpf_map_update_elem(&pairs, &learning->pair, &none, BPF_NOEXIST);
		pair = bpf_map_lookup_elem(&pairs, &learning->pair);
		if (!pair)
			return;
	}
	if (__sync_fetch_and_add(&pair->points, points) + points >= POINTS_ENOUGH)
		learn(learning, pair, walk->ip_version);
}

static __always_inline void note_call(const struct walk *walk, struct learning *learning,
				      bool has_id, __u32 ifindex, bool is_leaving)
{
	struct strange_call call = {
		.start_ns = bpf_ktime_get_ns(),
		.qpn = walk->key.qpn,
		.ifindex = ifindex,
		.is_leaving = is_leaving,
	};
	const struct strange_call *known;

	__builtin_memcpy(learning->strange.client, walk->key.from, 16);
	__builtin_memcpy(learning->strange.server, walk->key.to, 16);
	known = has_id ? NULL : bpf_map_lookup_elem(&strange_calls, &learning->strange);
	if (known && known->qpn != call.qpn && call.start_ns - known->start_ns < STALE_NS)
		call.qpn = LDMA_MONITOR_NONE;
	bpf_map_update_elem(&strange_calls, &learning->strange, &call, BPF_ANY);
}

static __always_inline void note_reply(const struct walk *walk, struct learning *learning,
				       bool has_id, __u32 ifindex, bool is_leaving)
{
	const struct strange_call *call;

	__builtin_memcpy(learning->strange.client, walk->key.to, 16);
	__builtin_memcpy(learning->strange.server, walk->key.from, 16);
	call = bpf_map_lookup_elem(&strange_calls, &learning->strange);
	if (!call || call->qpn == LDMA_MONITOR_NONE || call->ifindex != ifindex ||
	    (ifindex != LOOPBACK && call->is_leaving == is_leaving))
		return;
	__builtin_memcpy(learning->pair.client, walk->key.to, 16);
	__builtin_memcpy(learning->pair.server, walk->key.from, 16);
	learning->pair.client_qpn = walk->key.qpn;
	learning->pair.server_qpn = call->qpn;
	bpf_map_delete_elem(&strange_calls, &learning->strange);
	on_exchange(walk, learning, has_id ? POINTS_WITH_SESSION : 1);
}

static __always_inline void name_strange(struct learning *learning, const __u64 id[2],
					 const __u32 slot[2])
{
	learning->strange.id[0] = id[0];
	learning->strange.id[1] = id[1];
	learning->strange.slot[0] = slot[0];
	learning->strange.slot[1] = slot[1];
}

/* Reads a message to a queue pair of no connection, from `at` to `end` of the window. The rest of learning is a
 * function of its own, since Linux 6.1 bounds the stack of all that call each other. */
static __always_inline enum strange_kind read_strange(const struct scratch *scratch, __u32 at,
						      __u32 end)
{
	struct message message = {.window = scratch->window, .at = at, .end = end};
	struct learning *learning = find_learning();
	struct rpcrdma header;
	int has_message = read_header(&message, &header);

	if (has_message < 0 || !learning)
		return STRANGE_NONE;
	learning->strange.xid = header.xid;
	if (!has_message || !has(&message, 24))
		return STRANGE_OTHER;
	if (peek(&message, 4) == LDMA_RPC_CALL) {
		if (!has(&message, 32) || peek(&message, 12) != LDMA_NFS_PROGRAM)
			return STRANGE_OTHER;
		learning->call = (struct seen_call){0};
		read_call(&message, &learning->call);
		return STRANGE_CALL;
	}
	learning->reply = (struct seen_reply){0};
	return read_reply(&message, true, &learning->reply) ? STRANGE_REPLY : STRANGE_OTHER;
}

/* Learns from the message that was read last. */
static __always_inline void learn_from(const struct walk *walk, enum strange_kind kind,
				       __u32 ifindex, bool is_leaving)
{
	struct learning *learning = find_learning();
	__u64 now_ns;

	if (!learning)
		return;
	if (is_leaving || ifindex == LOOPBACK) {
		now_ns = bpf_ktime_get_ns();
		/* Linux 6.1 takes no key from the memory of a caller. */
		name_place(learning, walk->key.from, walk->key.to, walk->key.qpn);
		bpf_map_update_elem(&strangers, &learning->key, &now_ns, BPF_ANY);
	}
	if (kind == STRANGE_CALL) {
		name_strange(learning, learning->call.id, learning->call.slot);
		note_call(walk, learning, learning->call.has_id, ifindex, is_leaving);
	} else if (kind == STRANGE_REPLY) {
		name_strange(learning, learning->reply.id, learning->reply.slot);
		note_reply(walk, learning, learning->reply.has_id, ifindex, is_leaving);
	}
}

#endif
