/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The monitor's connections: it learns them from the CM's messages (IBA 12.6), and finds them by the queue pair that a
 * packet goes to. */
#ifndef LDMA_MONITOR_CONNECTIONS_H
#define LDMA_MONITOR_CONNECTIONS_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/monitor_tables.h"
#include "wire/cm.h"

#define LOOPBACK 1         /* the index of lo, in each network namespace */
#define REQUESTS_MOST 1024 /* REQs that wait for their REPs */
#define CM_BYTES 80        /* of a MAD: the header, and the part of a message that is read */
#define CM_AT 24           /* where the message begins */

enum { CM_SEND = 3, CM_RC = 0 }; /* a method of MADs, and a REQ's kind of queue pair */

/* The walk through a packet, segment by segment. */
struct walk {
	struct ldma_monitor_key key; /* of the queue pair that was looked up last */
	struct ldma_monitor_place place;
	__u64 now_ns;               /* 0: not read from the clock yet */
	__u32 payload, size, count; /* offset of the first BTH; bytes and number of segments */
	__u32 next;                 /* segment to look at */
	__u32 from, to;             /* the part of the packet that is in the window */
	__u32 ip_version;
};

const volatile __u16 ports[LDMA_MONITOR_PORTS];
const volatile __u32 port_count;

struct ldma_monitor_losses losses;
__u32 generation = 1;          /* changes whenever `places` has changed */
__u32 sessions_generation = 1; /* changes whenever a session was forgotten */
__u32 sessions_high;           /* all places of sessions that were ever used are below */

/* A request to connect, and the connection that it led to. */
struct request_key {
	__u8 client[16], server[16];
	__u32 comm_id; /* the client's */
};

struct cm_request {
	__u32 client_qpn;
	__u32 mtu_bytes;
	__u32 connection; /* LDMA_MONITOR_NONE: there is none yet */
	__u32 server_comm_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, REQUESTS_MOST);
	__type(key, struct request_key);
	__type(value, struct cm_request);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * LDMA_MONITOR_CONNECTIONS);
	__type(key, struct ldma_monitor_key);
	__type(value, struct ldma_monitor_place);
} places SEC(".maps");

/* max_entries of these are set when they are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_monitor_connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_connections SEC(".maps");

static __always_inline bool is_watched(__u64 service_id)
{
	if (service_id >> 16 != 0x106) /* the IP port space, TCP (IBA A11.2.2) */
		return false;
	for (__u32 i = 0; i < LDMA_MONITOR_PORTS; i++) {
		if (i < port_count && ports[i] == (__u16)service_id)
			return true;
	}
	return false;
}

static __always_inline __u32 word_at(const __u8 *cm, __u32 at)
{
	return bpf_ntohl(*(const __be32 *)(cm + CM_AT + at));
}

/* Returns a place for a connection, or NULL if none is free. User space has cleared it. */
static __always_inline struct ldma_monitor_connection *new_connection(__u32 *ret)
{
	struct ldma_monitor_connection *connection;

	if (bpf_map_pop_elem(&free_connections, ret)) {
		__sync_fetch_and_add(&losses.connections, 1);
		return NULL;
	}
	connection = bpf_map_lookup_elem(&connections, ret);
	return connection;
}

static __always_inline void end_place(const __u8 *from, const __u8 *to, __u32 qpn, __u32 index)
{
	struct ldma_monitor_key key = {.qpn = qpn};
	struct ldma_monitor_place *place;

	__builtin_memcpy(key.from, from, 16);
	__builtin_memcpy(key.to, to, 16);
	place = bpf_map_lookup_elem(&places, &key);
	if (place && place->connection == index)
		bpf_map_delete_elem(&places, &key);
	__sync_fetch_and_add(&generation, 1);
}

static __always_inline void begin_place(const __u8 *from, const __u8 *to, __u32 qpn, __u32 index,
					enum ldma_monitor_way way)
{
	struct ldma_monitor_key key = {.qpn = qpn};
	struct ldma_monitor_place place = {.connection = index, .way = way};

	__builtin_memcpy(key.from, from, 16);
	__builtin_memcpy(key.to, to, 16);
	bpf_map_update_elem(&places, &key, &place, BPF_ANY);
	__sync_fetch_and_add(&generation, 1);
}

static __noinline int on_request(const __u8 *cm, const struct ldma_monitor_key *path)
{
	struct cm_request request = {.connection = LDMA_MONITOR_NONE};
	struct request_key key = {0};
	__u8 mtu;

	if (!cm || !path)
		return 0;
	if (!is_watched((__u64)word_at(cm, 8) << 32 | word_at(cm, 12)) ||
	    (cm[CM_AT + 43] >> 1 & 3) != CM_RC)
		return 0;
	__builtin_memcpy(key.client, path->from, 16);
	__builtin_memcpy(key.server, path->to, 16);
	key.comm_id = word_at(cm, 0);
	request.client_qpn = word_at(cm, 32) >> 8;
	mtu = cm[CM_AT + 50] >> 4;
	request.mtu_bytes = mtu >= 1 && mtu <= 5 ? 128u << mtu : 256;
	bpf_map_update_elem(&requests, &key, &request, BPF_NOEXIST);
	return 0;
}

static __noinline int on_reply(const __u8 *cm, const struct ldma_monitor_key *path,
			       __u32 ip_version)
{
	struct ldma_monitor_connection *connection;
	struct request_key key = {0};
	struct cm_request *request;
	__u32 index;

	if (!cm || !path)
		return 0;
	__builtin_memcpy(key.client, path->to, 16);
	__builtin_memcpy(key.server, path->from, 16);
	key.comm_id = word_at(cm, 4);
	request = bpf_map_lookup_elem(&requests, &key);
	if (!request || request->connection != LDMA_MONITOR_NONE)
		return 0;
	connection = new_connection(&index);
	if (!connection)
		return 0;
	__builtin_memcpy(connection->server, path->from, 16);
	__builtin_memcpy(connection->client, path->to, 16);
	connection->server_qpn = word_at(cm, 12) >> 8;
	connection->client_qpn = request->client_qpn;
	connection->server_comm_id = word_at(cm, 0);
	connection->client_comm_id = key.comm_id;
	connection->mtu_bytes = request->mtu_bytes;
	connection->ip_version = ip_version;
	connection->counts.last_ns = connection->began_ns = bpf_ktime_get_ns();
	request->server_comm_id = connection->server_comm_id;
	request->connection = index;
	begin_place(path->to, path->from, connection->server_qpn, index, LDMA_MONITOR_TO_SERVER);
	begin_place(path->from, path->to, connection->client_qpn, index, LDMA_MONITOR_TO_CLIENT);
	return 0;
}

/* Takes a DREQ, DREP or REJ from either side. local is the sender's communication id; both ids have to be right. */
static __noinline int on_end(const __u8 *cm, const struct ldma_monitor_key *path, bool by_client)
{
	struct ldma_monitor_connection *connection;
	struct request_key key = {0};
	struct cm_request *request;
	__u32 local, remote;

	if (!cm || !path)
		return 0;
	local = word_at(cm, 0);
	remote = word_at(cm, 4);
	__builtin_memcpy(key.client, by_client ? path->from : path->to, 16);
	__builtin_memcpy(key.server, by_client ? path->to : path->from, 16);
	key.comm_id = by_client ? local : remote;
	request = bpf_map_lookup_elem(&requests, &key);
	if (!request || request->connection == LDMA_MONITOR_NONE ||
	    request->server_comm_id != (by_client ? remote : local))
		return 0;
	connection = bpf_map_lookup_elem(&connections, &request->connection);
	if (!connection || connection->client_comm_id != key.comm_id ||
	    connection->server_comm_id != request->server_comm_id || connection->ended_ns)
		return 0;
	end_place(key.client, key.server, connection->server_qpn, request->connection);
	end_place(key.server, key.client, connection->client_qpn, request->connection);
	connection->ended_ns = bpf_ktime_get_ns();
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

/* Ends a connection whose communication ids are not known by the queue pair to which a DREQ goes. */
static __noinline int on_unnamed_end(const __u8 *cm, const struct ldma_monitor_key *path)
{
	struct ldma_monitor_connection *connection;
	struct ldma_monitor_place *place;
	struct ldma_monitor_key key;
	__u32 index;

	if (!cm || !path)
		return 0;
	key = *path;
	key.qpn = word_at(cm, 8) >> 8;
	place = bpf_map_lookup_elem(&places, &key);
	if (!place)
		return 0;
	index = place->connection;
	connection = bpf_map_lookup_elem(&connections, &index);
	if (!connection || connection->client_comm_id || connection->server_comm_id ||
	    connection->ended_ns)
		return 0;
	end_place(connection->client, connection->server, connection->server_qpn, index);
	end_place(connection->server, connection->client, connection->client_qpn, index);
	connection->ended_ns = bpf_ktime_get_ns();
	return 0;
}

/* Takes a MAD to QP 1. cm: its first CM_BYTES bytes. */
static __always_inline void on_mad(const __u8 *cm, const struct ldma_monitor_key *path,
				   __u32 ip_version)
{
	if (cm[0] != 1 || cm[1] != LDMA_CM_CLASS || cm[3] != CM_SEND || cm[16])
		return;
	switch (cm[17]) {
	case LDMA_CM_REQ:
		on_request(cm, path);
		break;
	case LDMA_CM_REP:
		on_reply(cm, path, ip_version);
		break;
	case LDMA_CM_DREQ:
		on_unnamed_end(cm, path);
		/* fall through */
	case LDMA_CM_REJ:
	case LDMA_CM_DREP:
		on_end(cm, path, true);
		on_end(cm, path, false);
		break;
	}
}

#endif
