/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of user space's side of nfsd.bpf.c share. */
#ifndef LDMA_NFSD_INTERNAL_H
#define LDMA_NFSD_INTERNAL_H

#include "bpf/nfsd_session.h"

#define NFSD_PROGRAMS 26

struct nfsd_bpf;
struct bpf_link;

/* User space's side of a connection's place, with the values at the look before. */
struct nfsd_connection {
	uint64_t read_bytes, written_bytes, serving_ns;
	uint64_t last_credits, contexts_made, receives_failed;
	struct monitor_times_before calls, thread_waits, fetches, storage, send_waits;
	uint32_t number;
	uint32_t row;
	bool is_leaving; /* it was reported for the last time; a later look frees its place */
};

struct nfsd_known_session {
	uint64_t read_bytes, written_bytes;
	struct monitor_times_before times;
	uint64_t connections[LDMA_MONITOR_CONNECTIONS / 64]; /* places */
	bool is_leaving;
};

struct nfsd_session {
	struct nfsd_options options;
	struct nfsd_bpf *bpf;
	struct bpf_link *links[NFSD_PROGRAMS];
	struct nfsd_missing missing[NFSD_PROGRAMS];
	uint32_t missing_count;

	/* Mapped. */
	struct ldma_nfsd_connection *connections;
	struct ldma_nfsd_session *sessions;

	struct nfsd_connection *known_connections;
	struct nfsd_known_session *known_sessions;
	struct nfsd_connection_row *connection_rows;
	struct nfsd_session_row *session_rows;
	uint32_t last_number;
};

/* Finds out which programs this kernel has targets for, and keeps the others from being loaded. */
int nfsd_choose_programs(struct nfsd_session *session, struct capture_error *error);
/* Attaches them so that a call counts only if all of it is seen. */
int nfsd_attach_programs(struct nfsd_session *session, struct capture_error *error);

/* Change the maps for nfsd_look.c, or read them. */
void nfsd_free_connection(struct nfsd_session *session, uint32_t index);
void nfsd_forget_session(struct nfsd_session *session, uint32_t index);
void nfsd_free_session(struct nfsd_session *session, uint32_t index);
uint32_t nfsd_threads(const struct nfsd_session *session);
struct ldma_nfsd_losses nfsd_losses(const struct nfsd_session *session);

#endif
