/* SPDX-License-Identifier: BSD-2-Clause */
/* Declares what the files of the monitor's user space side share. */
#ifndef LDMA_MONITOR_INTERNAL_H
#define LDMA_MONITOR_INTERNAL_H

#include "bpf/capture_attach.h"
#include "bpf/monitor_session.h"
#include "bpf/monitor_times.h"

/* The values at the look before. */
struct monitor_before {
	uint64_t read_bytes, written_bytes;
	uint64_t rnr_naks, naks, retransmissions;
	struct monitor_times_before times;
};

/* User space's side of a connection's place. */
struct monitor_connection {
	struct monitor_before before;
	uint32_t number;
	uint32_t row;
	bool is_leaving; /* it was reported for the last time; the next look frees its place */
};

struct monitor_session {
	struct monitor_before before;
	uint64_t connections[LDMA_MONITOR_CONNECTIONS / 64]; /* places */
	uint32_t in_flight;
	bool is_leaving;
};

struct monitor {
	struct monitor_options options;
	struct monitor_bpf *bpf;
	struct attachment attached[2 * MONITOR_INTERFACES];
	uint32_t attached_count;

	/* Mapped. */
	struct ldma_monitor_connection *connections;
	struct ldma_monitor_session *sessions;
	struct ldma_monitor_block *blocks; /* LDMA_MONITOR_BLOCKS for each connection */

	struct monitor_connection *known_connections;
	struct monitor_session *known_sessions;
	struct monitor_connection_row *connection_rows;
	struct monitor_session_row *session_rows;
	uint32_t last_number;
};

/* Change the maps for monitor_look.c, or read them. */
void monitor_free_connection(struct monitor *monitor, uint32_t index);
void monitor_forget_places(struct monitor *monitor, uint32_t index);
void monitor_forget_session(struct monitor *monitor, uint32_t index);
void monitor_free_session(struct monitor *monitor, uint32_t index);
uint32_t monitor_sessions_high(const struct monitor *monitor);
struct ldma_monitor_losses monitor_losses(const struct monitor *monitor);

#endif
