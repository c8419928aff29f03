/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables in which monitor.bpf.c keeps connections, sessions and calls: arrays that user space maps, read and
 * written by both sides at the same time. Counters only grow (by atomic adds, and wrap): a reader takes differences. */
#ifndef LDMA_MONITOR_TABLES_H
#define LDMA_MONITOR_TABLES_H

#include <linux/types.h>

#define LDMA_MONITOR_PORTS 8          /* watched at most */
#define LDMA_MONITOR_CONNECTIONS 256  /* at most */
#define LDMA_MONITOR_SESSIONS 65536   /* at most */
#define LDMA_MONITOR_STRANGERS 1024   /* queue pairs that belong to no connection, at most */
#define LDMA_MONITOR_NONE 0xffffffffu /* no index */

/* Log-linear: units of 64 ns up to 1 us, then 16 steps to a power of two up to 2^36 ns (69 s), where the last step has
 * all that is longer. A time is known within 1/32 of itself as the middle of its step. */
#define LDMA_MONITOR_UNIT_BITS 6
#define LDMA_MONITOR_STEP_BITS 4
#define LDMA_MONITOR_STEPS 432
#define LDMA_MONITOR_UNITS_MOST ((1u << 30) - 1)

/* ldma_log_linear_bucket() of these units (base/log_linear.h), for BPF. */
static inline __attribute__((always_inline)) __u32 ldma_monitor_step(__u64 ns)
{
	__u64 units = ns >> LDMA_MONITOR_UNIT_BITS;
	__u32 value, shift = 0, rest;

	value = units > LDMA_MONITOR_UNITS_MOST ? LDMA_MONITOR_UNITS_MOST : (__u32)units;
	/* How far its highest bit is above bit 4: BPF has no instruction that counts zeros. */
	rest = value >> 4;
	if (rest >> 16) {
		shift += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		shift += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		shift += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		shift += 2;
		rest >>= 2;
	}
	shift += rest >> 1 ? 2 : rest;
	if (!shift)
		return value;
	return shift * 16 + ((value >> (shift - 1)) & 15);
}

/* What each answered call adds to; how many there were is the sum of the steps. What is used for each call comes first,
 * within one cache line as far as it fits: that is what a call costs. */
struct ldma_monitor_counts {
	__u64 last_ns; /* of a reply, CLOCK_MONOTONIC as all times */
	__u64 read_bytes, written_bytes;
	__u64 sum_ns;
	__u64 max_ns;  /* since user space set it to 0 */
	__u64 touched; /* a bit per line of steps that changed since user space set it to 0 */
};

#define LDMA_MONITOR_LINE 16 /* steps of a cache line */

struct ldma_monitor_times {
	__u32 steps[LDMA_MONITOR_STEPS];
};

enum ldma_monitor_way { LDMA_MONITOR_TO_SERVER, LDMA_MONITOR_TO_CLIENT, LDMA_MONITOR_WAYS };

/* The packets of each way are seen by a CPU of its own, so each way has a cache line of its own. */
struct ldma_monitor_flow {
	__u32 psn;     /* the highest of requests seen so far, with bit 24 set; 0: none yet */
	__u32 credits; /* asked for by the client, granted by the server */
	__u64 unused[7];
};

struct ldma_monitor_connection {
	struct ldma_monitor_counts counts;
	__u64 unused[2];
	struct ldma_monitor_flow flows[LDMA_MONITOR_WAYS];
	__u32 mtu_bytes;
	__u32 ip_version;
	__u8 server[16], client[16]; /* IPv4: the first four bytes, the others 0 */
	__u32 server_qpn, client_qpn;
	__u32 server_comm_id, client_comm_id; /* both 0: not known */
	__u64 began_ns;                       /* 0: the place is free */
	__u64 ended_ns;                       /* 0: it lives */
	__u64 rnr_naks, naks, retransmissions;
	__u64 learnt_ns; /* 0: its beginning was seen; else calls are known from here on */
	__u64 unused_too[3];
	struct ldma_monitor_times times;
};

struct ldma_monitor_session {
	struct ldma_monitor_counts counts;                /* last_ns 0: the place is free */
	__u64 connections[LDMA_MONITOR_CONNECTIONS / 64]; /* used since user space set them to 0 */
	__u8 id[16];
	__u64 unused[4];
	struct ldma_monitor_times times;
};

enum ldma_monitor_kind {
	LDMA_MONITOR_FOREIGN, /* no NFSv4 COMPOUND */
	LDMA_MONITOR_OTHER,   /* any other COMPOUND, or a call whose message comes by a chunk */
	LDMA_MONITOR_READ,
	LDMA_MONITOR_WRITE,
};

enum ldma_monitor_state {
	LDMA_MONITOR_EMPTY,
	LDMA_MONITOR_OPEN,
	LDMA_MONITOR_LATE,     /* open, and user space no longer waits for it */
	LDMA_MONITOR_ANSWERED, /* kept, so that it is recognised if it comes again */
};

/* What is kept of a call for replies that do not say all. */
struct ldma_monitor_call {
	__u64 id[2]; /* of its SEQUENCE */
	__u32 bytes; /* those that a WRITE brings, or those of the read list */
	__u16 tag_bytes;
	__u16 has_id;
};

/* A row: calls of a connection whose XIDs follow each other. One CPU sees the calls and another the replies, and what
 * costs most is to bring cache lines from one to the other: so a row keeps neighbours, and what their replies need,
 * together. */
#define LDMA_MONITOR_CALLS 8 /* of a row */

struct ldma_monitor_row {
	__u32 xid[LDMA_MONITOR_CALLS];
	__u32 state[LDMA_MONITOR_CALLS]; /* enum ldma_monitor_state; atomic */
	__u64 start_ns[LDMA_MONITOR_CALLS];
	__u32 session[LDMA_MONITOR_CALLS]; /* its index; LDMA_MONITOR_NONE: not known (yet) */
	__u32 kind[LDMA_MONITOR_CALLS];    /* enum ldma_monitor_kind */
	struct ldma_monitor_call more[LDMA_MONITOR_CALLS];
};

/* A block: a call may be in any of its rows. Clients count XIDs up in either byte order or put fields into them, so as
 * many calls as a block has rows can be open whose XIDs lead to the same block and the same place in a row. */
#define LDMA_MONITOR_ROWS 8    /* of a block */
#define LDMA_MONITOR_BLOCKS 32 /* of a connection */

struct ldma_monitor_block {
	struct ldma_monitor_row rows[LDMA_MONITOR_ROWS];
};

/* Counts what the monitor could not keep or read, since the start. */
struct ldma_monitor_losses {
	__u64 connections, sessions, calls, replies, unreadable;
	__u64 early; /* replies to calls that were under way when their connection was learnt */
};

/* A queue pair, as packets to it name it. */
struct ldma_monitor_key {
	__u8 from[16], to[16];
	__u32 qpn;
};

struct ldma_monitor_place {
	__u32 connection;
	__u32 way; /* enum ldma_monitor_way */
};

/* BPF and user space share these layouts, and each begins with a cache line. */
_Static_assert(sizeof(struct ldma_monitor_connection) == 320 + 4 * LDMA_MONITOR_STEPS, "shared");
_Static_assert(sizeof(struct ldma_monitor_session) == 128 + 4 * LDMA_MONITOR_STEPS, "shared");
_Static_assert(sizeof(struct ldma_monitor_row) == 6 * 64, "shared");
_Static_assert(LDMA_MONITOR_STEPS % LDMA_MONITOR_LINE == 0 &&
		       LDMA_MONITOR_STEPS / LDMA_MONITOR_LINE <= 64,
	       "aligned");

#endif
