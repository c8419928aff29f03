/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks into the kernel's NFS server: the programs of nfsd.bpf.c, loaded and attached, and their tables turned into rows.
 *
 * Programs attach as BPF links, which vanish with the process however it ends. Functions return 0 or a negative errno;
 * where they take a struct capture_error, it then holds one sentence that says what is wrong and what to do.
 * One thread uses a session at a time. */
#ifndef LDMA_NFSD_SESSION_H
#define LDMA_NFSD_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/capture_session.h"
#include "bpf/monitor_times.h"
#include "bpf/nfsd_tables.h"

struct nfsd_options {
	uint32_t connections, sessions; /* how many there is room for */
	uint64_t idle_ns;               /* after which a session is forgotten */
	bool verbose;                   /* libbpf's messages and the verifier's log go to stderr */
};

/* Something that is not seen, since this kernel lacks what its programs would attach to. */
struct nfsd_missing {
	const char *part;   /* what is not seen, in a word */
	const char *target; /* the function or tracepoint that is not there */
	const char *module; /* where it would be */
};

struct nfsd_connection_row {
	uint32_t number; /* never used twice */
	enum ldma_nfsd_transport kind;
	uint32_t ip_version; /* 4: addresses are their first four bytes */
	uint8_t server[16], client[16];
	uint16_t client_port;
	uint32_t server_qpn;
	uint32_t sessions; /* how many sessions name it */
	uint32_t in_flight, executing;
	uint32_t credits_asked, credits_granted;
	uint64_t read_bytes, written_bytes, serving_ns;
	uint64_t last_credits, contexts_made, receives_failed;
	struct monitor_times calls, thread_waits, fetches, storage, send_waits;
};

struct nfsd_session_row {
	uint8_t id[16];
	uint32_t in_flight;
	uint64_t read_bytes, written_bytes;
	/* Its connections, by their places in the rows, as those of struct monitor_session_row. */
	uint64_t connections[LDMA_MONITOR_CONNECTIONS / 64];
	struct monitor_times times;
};

/* The result of a look: what there is now, with counters of what was added since the look before. The session owns it;
 * it is valid until the next look. */
struct nfsd_view {
	const struct nfsd_connection_row *connections;
	const struct nfsd_session_row *sessions;
	uint32_t connection_count, session_count;
	uint32_t threads;               /* of nfsd; 0: there was no call yet */
	struct ldma_nfsd_losses losses; /* since the start */
};

struct nfsd_session;

/* Loads the programs and attaches them. -EPERM without the privilege; -ENOENT: nfsd is not loaded, or not as the
 * programs know it. */
int nfsd_open(const struct nfsd_options *options, struct nfsd_session **ret,
	      struct capture_error *error);

/* Returns how many parts are missing, and the first of them, `most` at most. */
uint32_t nfsd_missing(const struct nfsd_session *session, struct nfsd_missing *ret, uint32_t most);

/* Reads all tables once, and frees the places of connections and sessions that have ended or were idle for long. */
void nfsd_look(struct nfsd_session *session, struct nfsd_view *ret);

void nfsd_close(struct nfsd_session *session); /* detaches; accepts NULL */

#endif
