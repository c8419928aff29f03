/* SPDX-License-Identifier: BSD-2-Clause */
/* The session monitor: the programs of monitor.bpf.c, loaded and attached, and their tables turned into rows.
 *
 * Programs attach as BPF links, which vanish with the process however it ends. Functions return 0 or a negative errno;
 * where they take a struct capture_error, it then holds one sentence that says what is wrong and what to do.
 * One thread uses a monitor at a time. */
#ifndef LDMA_MONITOR_SESSION_H
#define LDMA_MONITOR_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/capture_session.h"
#include "bpf/monitor_tables.h"
#include "bpf/monitor_times.h"

#define MONITOR_INTERFACES 64 /* at most */

struct monitor_options {
	uint16_t ports[LDMA_MONITOR_PORTS]; /* of servers */
	uint32_t port_count;
	uint32_t connections, sessions; /* how many there is room for */
	uint64_t patience_ns;           /* how long to wait for replies */
	uint64_t idle_ns;               /* after which a session is forgotten */
	bool learns;                    /* connections that were made before, from their traffic */
	bool without_links;             /* as on kernels before 6.6 */
	bool verbose;                   /* libbpf's messages and the verifier's log go to stderr */
};

struct monitor_connection_row {
	uint32_t number;    /* never used twice */
	uint64_t learnt_ns; /* calls are known since then, by the monotonic clock; 0: all of them */
	uint8_t server[16], client[16];
	uint32_t ip_version; /* 4: addresses are their first four bytes */
	uint32_t server_qpn, client_qpn;
	uint32_t sessions; /* how many sessions name it */
	uint32_t in_flight;
	uint32_t credits_asked, credits_granted;
	uint64_t read_bytes, written_bytes;
	uint64_t rnr_naks, naks, retransmissions, unanswered;
	struct monitor_times times;
};

struct monitor_session_row {
	uint8_t id[16];
	uint32_t in_flight;
	uint64_t read_bytes, written_bytes;
	/* Its connections, by their places in the rows: those it used since the look before; if none, the ones
	 * before. */
	uint64_t connections[LDMA_MONITOR_CONNECTIONS / 64];
	struct monitor_times times;
};

/* The result of a look: what there is now, with counters of what was added since the look before. The monitor owns it;
 * it is valid until the next look. */
struct monitor_view {
	const struct monitor_connection_row *connections;
	const struct monitor_session_row *sessions;
	uint32_t connection_count, session_count;
	struct ldma_monitor_losses losses; /* since the start */
};

struct monitor;

/* Loads the programs. -EPERM without the privilege. */
int monitor_open(const struct monitor_options *options, struct monitor **ret,
		 struct capture_error *error);

/* Attaches to these interfaces of this thread's network namespace, and detaches from others. On failure nothing stays
 * attached. */
int monitor_attach(struct monitor *monitor, const uint32_t *ifindexes, uint32_t count,
		   struct capture_error *error);
void monitor_detach(struct monitor *monitor);

/* Returns whether all programs are still where they were attached. */
bool monitor_is_attached(const struct monitor *monitor);
enum capture_mode monitor_mode(const struct monitor *monitor);

/* Adds a connection that was made before. -EEXIST: it is known; -ENOSPC: there is no room. Addresses: 16 bytes, IPv4 in
 * the first four. */
int monitor_learn(struct monitor *monitor, const uint8_t *server, uint32_t server_qpn,
		  const uint8_t *client, uint32_t client_qpn, uint32_t ip_version);

/* Reads all tables once, and frees the places of connections and sessions that have ended or were idle for long. */
void monitor_look(struct monitor *monitor, struct monitor_view *ret);

/* Returns how many connections seem to be there that are not known yet: in the last `recent_ns` this side has sent
 * RPC-over-RDMA to queue pairs of so many, by the addresses at both ends. */
uint32_t monitor_strangers(const struct monitor *monitor, uint64_t recent_ns);

/* Shows a frame to the programs as if it passed lo: for captures and tests. segment_bytes: it is a train of segments of
 * that size after its UDP header, and short enough for the kernel (3 KiB will do); 0: it is no train. */
int monitor_feed(struct monitor *monitor, const uint8_t *frame, uint32_t length,
		 uint32_t segment_bytes);

void monitor_close(struct monitor *monitor); /* detaches; accepts NULL */

#endif
