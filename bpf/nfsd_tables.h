/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables in which nfsd.bpf.c keeps connections and sessions of the kernel's NFS server: arrays that user space
 * maps, read and written by both sides at the same time, as those of the monitor are (monitor_tables.h). */
#ifndef LDMA_NFSD_TABLES_H
#define LDMA_NFSD_TABLES_H

#include "bpf/monitor_tables.h"

#define LDMA_NFSD_ARRIVALS                                                                         \
	128 /* of bytes on a TCP connection, kept until their call is read; a power of two */
#define LDMA_NFSD_THREADS 4096   /* of the kernel that serve calls, at most */
#define LDMA_NFSD_RECEIVED 16384 /* calls over RDMA that have arrived and are not done, at most */

enum ldma_nfsd_transport { LDMA_NFSD_TCP = 6, LDMA_NFSD_RDMA = 256 }; /* the kernel's xcl_ident */

struct ldma_nfsd_times {
	struct ldma_monitor_counts counts;
	struct ldma_monitor_times times;
};

/* Says that the bytes of a TCP connection before `sequence` had arrived at `at_ns`. */
struct ldma_nfsd_arrival {
	__u64 at_ns;
	__u32 sequence;
	__u32 unused;
};

struct ldma_nfsd_connection {
	__u64 began_ns;  /* 0: the place is free */
	__u64 ended_ns;  /* 0: it lives */
	__u64 transport; /* the address of its struct svc_xprt: its name among the programs */
	__u32 kind;      /* enum ldma_nfsd_transport */
	__u32 ip_version;
	__u8 server[16], client[16]; /* IPv4: the first four bytes */
	__u16 server_port, client_port;
	__u32 server_qpn;
	__u32 credits_asked, credits_granted;
	__u32 in_flight;     /* over RDMA: calls that have arrived and are not done */
	__u32 executing;     /* calls that a thread works on */
	__u64 serving_ns;    /* of threads, for calls that have ended */
	__u64 last_credits;  /* calls that took the last credit when they arrived */
	__u64 contexts_made; /* for RDMA READs and WRITEs, since none was free */
	__u64 receives_failed;
	__u32 newest, oldest; /* of `arrivals`: count up, modulo LDMA_NFSD_ARRIVALS */
	struct ldma_nfsd_arrival arrivals[LDMA_NFSD_ARRIVALS];
	struct ldma_nfsd_times calls;        /* from a call's arrival to its reply's departure */
	struct ldma_nfsd_times thread_waits; /* until a thread began with it */
	struct ldma_nfsd_times fetches;      /* by RDMA READ, of what the client writes */
	struct ldma_nfsd_times storage;
	struct ldma_nfsd_times send_waits; /* for room in the send queue */
};

struct ldma_nfsd_session {
	struct ldma_nfsd_times calls; /* its counts' last_ns 0: the place is free */
	__u64 connections[LDMA_MONITOR_CONNECTIONS / 64]; /* used since user space set them to 0 */
	__u8 id[16];
	__u32 executing;
	__u32 unused;
};

/* What could not be kept or known, since the start. */
struct ldma_nfsd_losses {
	__u64 connections, sessions, calls;
	__u64 early; /* calls whose arrival was not seen: their time counts from the moment a thread began */
};

_Static_assert(sizeof(struct ldma_nfsd_times) == 48 + 4 * LDMA_MONITOR_STEPS, "shared");
_Static_assert(sizeof(struct ldma_nfsd_connection) ==
		       128 + 16 * LDMA_NFSD_ARRIVALS + 5 * sizeof(struct ldma_nfsd_times),
	       "shared");
_Static_assert(sizeof(struct ldma_nfsd_session) == 56 + sizeof(struct ldma_nfsd_times), "shared");

#endif
