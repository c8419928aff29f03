/* Calls, from their arrival to their replies, and what they add to their connections and sessions. */
#ifndef LDMA_MONITOR_CALLS_H
#define LDMA_MONITOR_CALLS_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "monitor_connections.h"
#include "monitor_message.h"
#include "monitor_tables.h"

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
	__uint(max_entries, LDMA_MONITOR_SETS);
	__type(key, __u32);
	__type(value, struct ldma_monitor_calls);
} calls SEC(".maps");

static __always_inline __u64 now_of(struct walk *walk)
{
	if (!walk->now_ns)
		walk->now_ns = bpf_ktime_get_ns();
	return walk->now_ns;
}

/* Counts up with XIDs that do so, in whichever byte order. */
static __always_inline __u32 hash_of(__u32 xid)
{
	return xid + bpf_ntohl(xid);
}

static __always_inline struct ldma_monitor_calls *set_of(__u32 connection, __u32 xid)
{
	__u32 hash = hash_of(xid);
	__u32 key = connection * LDMA_MONITOR_SETS + (hash & (LDMA_MONITOR_SETS - 1));

	return bpf_map_lookup_elem(&calls, &key);
}

/* Where the call with this XID is kept; LDMA_MONITOR_CALLS: nowhere. */
static __always_inline __u32 find_call(const struct ldma_monitor_calls *set, __u32 xid)
{
	__u32 i;

	for (i = 0; i < LDMA_MONITOR_CALLS; i++) {
		if (set->xid[i] == xid && set->state[i] != LDMA_MONITOR_EMPTY)
			break;
	}
	return i;
}

static __always_inline bool is_open(__u32 state)
{
	return state == LDMA_MONITOR_OPEN || state == LDMA_MONITOR_LATE;
}

/* A place for a call: one without an open call, in turn; if there is none, one is lost. */
static __always_inline __u32 place_call(struct ldma_monitor_calls *set, __u32 xid)
{
	__u32 first = hash_of(xid) / LDMA_MONITOR_SETS;

	for (__u32 i = 0; i < LDMA_MONITOR_CALLS; i++) {
		__u32 at = (first + i) % LDMA_MONITOR_CALLS;

		if (!is_open(set->state[at]))
			return at;
	}
	__sync_fetch_and_add(&losses.calls, 1);
	return first % LDMA_MONITOR_CALLS;
}

/* In the order of the program: user space reads a call only while it is open. */
static __always_inline void set_state(struct ldma_monitor_calls *set, __u32 at, __u32 state)
{
	asm volatile("" ::: "memory");
	set->state[at] = state;
	asm volatile("" ::: "memory");
}

__noinline int open_call(struct walk *walk, const struct rpcrdma *header,
			 const struct seen_call *seen, __u32 is_again)
{
	struct ldma_monitor_calls *set;
	struct ldma_monitor_call *call;
	__u32 at, *session = NULL;

	if (!walk || !header || !seen)
		return 0;
	set = set_of(walk->place.connection, header->xid);
	if (!set)
		return 0;
	at = find_call(set, header->xid);
	if (at < LDMA_MONITOR_CALLS && (is_again || is_open(set->state[at])))
		return 0;
	if (at == LDMA_MONITOR_CALLS)
		at = place_call(set, header->xid);
	at %= LDMA_MONITOR_CALLS;
	call = &set->call[at];
	set_state(set, at, LDMA_MONITOR_EMPTY);
	if (seen->has_id)
		session = bpf_map_lookup_elem(&sessions_by_id, seen->id);
	call->start_ns = now_of(walk);
	call->session = session ? *session : LDMA_MONITOR_NONE;
	call->bytes = seen->kind == LDMA_MONITOR_WRITE ? seen->bytes : header->read_bytes;
	call->kind = seen->kind;
	call->tag_bytes = (seen->tag_bytes + 3) & ~3u;
	call->has_id = seen->has_id;
	__builtin_memcpy(call->id, seen->id, 16);
	set->xid[at] = header->xid;
	set_state(set, at, LDMA_MONITOR_OPEN);
	return 0;
}

struct session_id {
	__u64 halves[2];
};

/* The session of that id, which has a place from now on if there is one. */
__noinline __u32 session_of(const struct session_id *id)
{
	struct ldma_monitor_session *session;
	__u32 index, *known;
	__u64 key[2];

	if (!id)
		return LDMA_MONITOR_NONE;
	key[0] = id->halves[0];
	key[1] = id->halves[1];
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
	/* Another CPU was faster. */
	session->counts.last_ns = 0;
	bpf_map_push_elem(&free_sessions, &index, 0);
	known = bpf_map_lookup_elem(&sessions_by_id, key);
	if (known)
		return *known;
lost:
	__sync_fetch_and_add(&losses.sessions, 1);
	return LDMA_MONITOR_NONE;
}

/* An answered call. */
struct answer {
	__u64 now_ns, ns;
	__u32 step;
	__u32 read, written;
};

static __always_inline void count(struct ldma_monitor_counts *counts,
				  struct ldma_monitor_times *times, const struct answer *answer)
{
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

/* Whether the SEQUENCE of a call worked, whose reply came by a chunk: only then there is so much of it. */
static __always_inline bool has_worked_unseen(const struct ldma_monitor_call *call,
					      const struct rpcrdma *header)
{
	return header->proc == RPCRDMA_NOMSG && call->has_id &&
	       header->reply_bytes >= SEQUENCE_REPLY_BYTES + call->tag_bytes;
}

/* Counts an answered call, of which the table may have the next one already: hence the copy. */
__noinline int count_call(struct walk *walk, const struct ldma_monitor_call *call,
			  const struct rpcrdma *header, const struct seen_reply *seen)
{
	struct ldma_monitor_connection *connection;
	struct answer answer = {0};
	struct session_id id;
	__u32 index;

	if (!walk || !call || !header || !seen)
		return 0;
	connection = bpf_map_lookup_elem(&connections, &walk->place.connection);
	if (!connection)
		return 0;
	answer.now_ns = now_of(walk);
	answer.ns = answer.now_ns - call->start_ns;
	/* Times are taken on several CPUs. */
	if ((__s64)answer.ns <= 0)
		answer.ns = 1;
	answer.step = ldma_monitor_step(answer.ns);
	if (seen->kind == LDMA_MONITOR_READ) {
		answer.read = seen->bytes;
	} else if (seen->kind == LDMA_MONITOR_WRITE) {
		answer.written = seen->bytes;
	} else if (!seen->has_failed && header->proc != RPCRDMA_ERROR) {
		/* Its results were not seen, or are others: what was moved by chunks. */
		answer.read = header->write_bytes;
		answer.written = call->bytes;
	}
	count(&connection->counts, &connection->times, &answer);
	if (!seen->has_id && !has_worked_unseen(call, header))
		return 0;
	index = call->session;
	if (index == LDMA_MONITOR_NONE) {
		__builtin_memcpy(&id, seen->has_id ? (const void *)seen->id : call->id, 16);
		index = session_of(&id);
	}
	if (index != LDMA_MONITOR_NONE)
		count_session(index, walk->place.connection, &answer);
	return 0;
}

__noinline int on_answer(struct walk *walk, const struct rpcrdma *header, int body, __u32 length,
			 __u32 is_again)
{
	struct ldma_monitor_connection *connection;
	struct seen_reply seen = {0};
	struct ldma_monitor_call call;
	struct ldma_monitor_calls *set;
	__u32 at, state;

	if (!walk || !header)
		return 0;
	set = set_of(walk->place.connection, header->xid);
	connection = bpf_map_lookup_elem(&connections, &walk->place.connection);
	if (!set || !connection)
		return 0;
	at = find_call(set, header->xid);
	if (at >= LDMA_MONITOR_CALLS) {
		/* A call of the server's own (a callback) is none of ours. */
		if (!is_again && (!body || read_reply(body, length, false, &seen)))
			__sync_fetch_and_add(&losses.replies, 1);
		return 0;
	}
	state = set->state[at];
	if (!is_open(state))
		return 0;
	call = set->call[at];
	if (body && !read_reply(body, length, call.kind != LDMA_MONITOR_FOREIGN, &seen))
		return 0;
	if (__sync_val_compare_and_swap(&set->state[at], state, LDMA_MONITOR_ANSWERED) != state)
		return 0;
	connection->credits_granted = header->credits;
	return count_call(walk, &call, header, &seen);
}

#endif
