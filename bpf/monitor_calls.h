/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The monitor's calls: it keeps each from its arrival to its reply, and adds its figures to its connection and
 * session. */
#ifndef LDMA_MONITOR_CALLS_H
#define LDMA_MONITOR_CALLS_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/monitor_connections.h"
#include "bpf/monitor_message.h"
#include "bpf/monitor_tables.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_monitor_session);
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LDMA_MONITOR_BLOCKS);
	__type(key, __u32);
	__type(value, struct ldma_monitor_block);
} calls SEC(".maps");

const volatile __u64 patience_ns;

static __always_inline __u64 now_of(struct walk *walk)
{
	if (!walk->now_ns)
		walk->now_ns = bpf_ktime_get_ns();
	return walk->now_ns;
}

/* Returns a hash that counts up when XIDs do, in either byte order. */
static __always_inline __u32 hash_of(__u32 xid)
{
	return xid + bpf_ntohl(xid);
}

/* The place where calls of one XID are kept. */
struct spot {
	struct ldma_monitor_block *block;
	__u32 at;    /* of a row */
	__u32 first; /* the row that is tried first */
};

static __always_inline bool find_spot(__u32 connection, __u32 xid, struct spot *ret)
{
	__u32 hash = hash_of(xid);
	__u32 key =
		connection * LDMA_MONITOR_BLOCKS + hash / LDMA_MONITOR_CALLS % LDMA_MONITOR_BLOCKS;

	ret->at = hash % LDMA_MONITOR_CALLS;
	ret->first = hash / (LDMA_MONITOR_CALLS * LDMA_MONITOR_BLOCKS);
	ret->block = bpf_map_lookup_elem(&calls, &key);
	return ret->block;
}

static __always_inline struct ldma_monitor_row *row_of(const struct spot *spot, __u32 i)
{
	return &spot->block->rows[(spot->first + i) % LDMA_MONITOR_ROWS];
}

/* Begins to bring the row into this CPU's cache: another CPU has written it. */
static __always_inline void touch(const struct spot *spot)
{
	(void)*(const volatile __u32 *)row_of(spot, 0)->xid;
}

/* Returns the row that has the call with this XID, or NULL. */
static __always_inline struct ldma_monitor_row *find_call(const struct spot *spot, __u32 xid)
{
	for (__u32 i = 0; i < LDMA_MONITOR_ROWS; i++) {
		struct ldma_monitor_row *row = row_of(spot, i);

		if (row->xid[spot->at] == xid && row->state[spot->at] != LDMA_MONITOR_EMPTY)
			return row;
	}
	return NULL;
}

static __always_inline bool is_open(__u32 state)
{
	return state == LDMA_MONITOR_OPEN || state == LDMA_MONITOR_LATE;
}

/* Returns a row for a new call: the first without an open call; if there is none, one call is lost. NULL: the call is
 * open already. Later rows are not read, since the CPU that sees the replies works there. */
static __always_inline struct ldma_monitor_row *place_call(const struct spot *spot, __u32 xid)
{
	for (__u32 i = 0; i < LDMA_MONITOR_ROWS; i++) {
		struct ldma_monitor_row *row = row_of(spot, i);

		if (!is_open(row->state[spot->at]))
			return row;
		if (row->xid[spot->at] == xid)
			return NULL;
	}
	__sync_fetch_and_add(&losses.calls, 1);
	return row_of(spot, 0);
}

/* Reads a message's header, and finds where its call is or will be. Returns as read_header(). */
static __always_inline int begin_message(const struct walk *walk, struct message *message,
					 __u32 is_again, struct rpcrdma *header, struct spot *spot)
{
	int has_message;

	if (!find_spot(walk->place.connection, peek(message, 0), spot))
		return -1;
	touch(spot);
	has_message = read_header(message, header);
	if (has_message < 0 && !is_again)
		__sync_fetch_and_add(&losses.unreadable, 1);
	return has_message;
}

/* Sets the state in the order of the program: user space reads a call only while it is open. */
static __always_inline void set_state(struct ldma_monitor_row *row, __u32 at, __u32 state)
{
	asm volatile("" ::: "memory");
	row->state[at] = state;
	asm volatile("" ::: "memory");
}

/* Returns the session's index, or LDMA_MONITOR_NONE. */
static __always_inline __u32 known_session(struct scratch *scratch, const __u64 id[2])
{
	__u32 at = (id[0] ^ id[1]) * 0x9e3779b97f4a7c15ull >> 32, now = sessions_generation;
	struct recent_session *recent = &scratch->sessions[at % RECENT_SESSIONS];
	__u32 *known;

	if (recent->generation == now && recent->id[0] == id[0] && recent->id[1] == id[1])
		return recent->index;
	known = bpf_map_lookup_elem(&sessions_by_id, id);
	if (!known)
		return LDMA_MONITOR_NONE;
	recent->id[0] = id[0];
	recent->id[1] = id[1];
	recent->index = *known;
	recent->generation = now;
	return recent->index;
}

static __always_inline void open_call(struct walk *walk, struct scratch *scratch,
				      const struct spot *spot, const struct rpcrdma *header,
				      const struct seen_call *seen, __u32 is_again)
{
	struct ldma_monitor_row *row;
	__u32 at = spot->at;

	if (is_again && find_call(spot, header->xid))
		return;
	row = place_call(spot, header->xid);
	if (!row)
		return;
	set_state(row, at, LDMA_MONITOR_EMPTY);
	row->start_ns[at] = now_of(walk);
	row->session[at] = seen->has_id ? known_session(scratch, seen->id) : LDMA_MONITOR_NONE;
	row->kind[at] = seen->kind;
	row->more[at] = (struct ldma_monitor_call){
		.id = {seen->id[0], seen->id[1]},
		.bytes = seen->kind == LDMA_MONITOR_WRITE ? seen->bytes : header->read_bytes,
		.tag_bytes = (seen->tag_bytes + 3) & ~3u,
		.has_id = seen->has_id,
	};
	row->xid[at] = header->xid;
	set_state(row, at, LDMA_MONITOR_OPEN);
}

/* Takes the first packet of a SEND to the server, whose message is from `at` to `end` of the window. */
static __always_inline void on_call(struct walk *walk, struct scratch *scratch,
				    struct ldma_monitor_connection *connection, __u32 at, __u32 end,
				    __u32 is_again)
{
	struct message message = {.window = scratch->window, .at = at, .end = end};
	struct seen_call seen = {.kind = LDMA_MONITOR_OTHER};
	struct rpcrdma header;
	struct spot spot;
	int has_message;

	has_message = begin_message(walk, &message, is_again, &header, &spot);
	if (has_message < 0 || header.proc > LDMA_RPCRDMA_NOMSG ||
	    (has_message && !read_call(&message, &seen)))
		return;
	connection->flows[LDMA_MONITOR_TO_SERVER].credits = header.credits;
	open_call(walk, scratch, &spot, &header, &seen, is_again);
}

/* An answered call. */
struct answer {
	__u64 now_ns, ns;
	__u64 id[2];
	__u32 step;
	__u32 read, written;
	__u32 has_id;  /* id is that of a session whose SEQUENCE worked */
	__u32 session; /* its index; LDMA_MONITOR_NONE: not known */
};

/* Returns the index of the answer's session, and gives a new one a place; LDMA_MONITOR_NONE if none is free. */
__noinline __u32 session_of(const struct answer *answer)
{
	struct ldma_monitor_session *session;
	__u32 index, *known;
	__u64 key[2];

	if (!answer)
		return LDMA_MONITOR_NONE;
	key[0] = answer->id[0];
	key[1] = answer->id[1];
	known = bpf_map_lookup_elem(&sessions_by_id, key);
	if (known)
		return *known;
	if (bpf_map_pop_elem(&free_sessions, &index))
		goto lost;
	session = bpf_map_lookup_elem(&sessions, &index);
	if (!session)
		goto lost;
	__builtin_memcpy(session->id, key, 16);
	session->counts.last_ns = bpf_ktime_get_ns();
	if (index >= sessions_high)
		sessions_high = index + 1;
	if (!bpf_map_update_elem(&sessions_by_id, key, &index, BPF_NOEXIST))
		return index;
	/* Another CPU has added the session meanwhile. */
	session->counts.last_ns = 0;
	bpf_map_push_elem(&free_sessions, &index, 0);
	known = bpf_map_lookup_elem(&sessions_by_id, key);
	if (known)
		return *known;
lost:
	__sync_fetch_and_add(&losses.sessions, 1);
	return LDMA_MONITOR_NONE;
}

static __always_inline void count(struct ldma_monitor_counts *counts,
				  struct ldma_monitor_times *times, const struct answer *answer)
{
	__u64 line = 1ull << answer->step / LDMA_MONITOR_LINE;

	counts->last_ns = answer->now_ns;
	if (answer->read)
		__sync_fetch_and_add(&counts->read_bytes, answer->read);
	if (answer->written)
		__sync_fetch_and_add(&counts->written_bytes, answer->written);
	__sync_fetch_and_add(&counts->sum_ns, answer->ns);
	if (answer->ns > counts->max_ns)
		counts->max_ns = answer->ns;
	if (answer->step < LDMA_MONITOR_STEPS)
		__sync_fetch_and_add(&times->steps[answer->step], 1);
	/* The bit is set last: a reader that finds it finds what it stands for. */
	if (!(counts->touched & line))
		__sync_fetch_and_or(&counts->touched, line);
}

static __always_inline void count_session(__u32 index, __u32 connection,
					  const struct answer *answer)
{
	struct ldma_monitor_session *session = bpf_map_lookup_elem(&sessions, &index);
	__u64 bit = 1ull << (connection % 64);
	__u64 *used;

	if (!session)
		return;
	used = &session->connections[connection / 64 % (LDMA_MONITOR_CONNECTIONS / 64)];
	if (!(*used & bit))
		__sync_fetch_and_or(used, bit);
	count(&session->counts, &session->times, answer);
}

/* Returns whether the SEQUENCE of a call worked whose reply came by a chunk: only then is the reply so long. */
static __always_inline bool has_worked_unseen(const struct ldma_monitor_call *call,
					      const struct rpcrdma *header)
{
	return header->proc == LDMA_RPCRDMA_NOMSG && call->has_id &&
	       header->reply_bytes >= SEQUENCE_REPLY_BYTES + call->tag_bytes;
}

static __always_inline void read_answer(struct walk *walk, const struct ldma_monitor_row *row,
					__u32 at, const struct rpcrdma *header,
					const struct seen_reply *seen, struct answer *ret)
{
	const struct ldma_monitor_call *more = &row->more[at];

	ret->now_ns = now_of(walk);
	ret->ns = ret->now_ns - row->start_ns[at];
	/* Times are taken on several CPUs. */
	if ((__s64)ret->ns <= 0)
		ret->ns = 1;
	ret->step = ldma_monitor_step(ret->ns);
	if (seen->kind == LDMA_MONITOR_READ) {
		ret->read = seen->bytes;
	} else if (seen->kind == LDMA_MONITOR_WRITE) {
		ret->written = seen->bytes;
	} else if (!seen->has_failed && header->proc != LDMA_RPCRDMA_ERROR) {
		/* Its results were not seen, or are of other operations: counts what chunks moved. */
		ret->read = header->write_bytes;
		ret->written = more->bytes;
	}
	ret->session = row->session[at];
	ret->has_id = seen->has_id;
	ret->id[0] = seen->id[0];
	ret->id[1] = seen->id[1];
	if (!seen->has_id && has_worked_unseen(more, header)) {
		ret->has_id = 1;
		ret->id[0] = more->id[0];
		ret->id[1] = more->id[1];
	}
}

static __always_inline void
count_answer(struct walk *walk, struct ldma_monitor_connection *connection, struct answer *answer)
{
	count(&connection->counts, &connection->times, answer);
	if (!answer->has_id)
		return;
	if (answer->session == LDMA_MONITOR_NONE)
		answer->session = session_of(answer);
	if (answer->session != LDMA_MONITOR_NONE)
		count_session(answer->session, walk->place.connection, answer);
}

/* Counts a reply to a call that is not known. */
static __always_inline void count_unasked(struct walk *walk,
					  const struct ldma_monitor_connection *connection)
{
	if (connection->learnt_ns && now_of(walk) - connection->learnt_ns < patience_ns)
		__sync_fetch_and_add(&losses.early, 1);
	else
		__sync_fetch_and_add(&losses.replies, 1);
}

/* Takes the first packet of a SEND to the client. */
static __always_inline void on_answer(struct walk *walk, struct scratch *scratch,
				      struct ldma_monitor_connection *connection, __u32 at,
				      __u32 end, __u32 is_again)
{
	struct message message = {.window = scratch->window, .at = at, .end = end};
	struct seen_reply seen = {0};
	struct answer answer = {0};
	struct ldma_monitor_row *row;
	struct rpcrdma header;
	struct spot spot;
	int has_message;
	__u32 state;

	has_message = begin_message(walk, &message, is_again, &header, &spot);
	if (has_message < 0 || header.proc == LDMA_RPCRDMA_DONE)
		return;
	row = find_call(&spot, header.xid);
	if (!row) {
		/* The server's own calls (callbacks) are not followed. */
		if (!is_again && (!has_message || is_reply(&message)))
			count_unasked(walk, connection);
		return;
	}
	at = spot.at;
	state = row->state[at];
	if (!is_open(state))
		return;
	if (has_message && !read_reply(&message, row->kind[at] != LDMA_MONITOR_FOREIGN, &seen))
		return;
	/* Read first: once the call is answered, its place may have the next call. */
	read_answer(walk, row, at, &header, &seen, &answer);
	if (__sync_val_compare_and_swap(&row->state[at], state, LDMA_MONITOR_ANSWERED) != state)
		return;
	connection->flows[LDMA_MONITOR_TO_CLIENT].credits = header.credits;
	count_answer(walk, connection, &answer);
}

#endif
