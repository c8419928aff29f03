/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "bpf/monitor_internal.h"
#include "bpf/monitor_times.h"
#include "bpf/wall_clock.h"

#define WORDS (LDMA_MONITOR_CONNECTIONS / 64)
#define GRACE_NS 20000000u /* after it no program still works on an ended connection or session */

/* Counts the open calls of a connection, and of each session. Returns how many calls were given up. */
static uint64_t look_at_calls(struct monitor *monitor, uint32_t index, uint64_t now_ns,
			      bool has_ended, uint32_t *ret_in_flight)
{
	struct ldma_monitor_row *row = monitor->blocks[index * LDMA_MONITOR_BLOCKS].rows;
	uint64_t unanswered = 0;

	for (uint32_t i = 0; i < LDMA_MONITOR_BLOCKS * LDMA_MONITOR_ROWS; i++, row++) {
		for (uint32_t j = 0; j < LDMA_MONITOR_CALLS; j++) {
			uint32_t open = LDMA_MONITOR_OPEN;
			int64_t age_ns;

			if (__atomic_load_n(&row->state[j], __ATOMIC_ACQUIRE) != open)
				continue;
			age_ns = (int64_t)(now_ns - monitor_load(&row->start_ns[j]));
			if (has_ended || age_ns > (int64_t)monitor->options.patience_ns) {
				unanswered += __atomic_compare_exchange_n(
					&row->state[j], &open, LDMA_MONITOR_LATE, false,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED);
				continue;
			}
			++*ret_in_flight;
			if (row->session[j] < monitor->options.sessions)
				monitor->known_sessions[row->session[j]].in_flight++;
		}
	}
	return unanswered;
}

static void look_at_connection(struct monitor *monitor, uint32_t index, uint64_t now_ns,
			       struct monitor_connection_row *row)
{
	struct ldma_monitor_connection *connection = &monitor->connections[index];
	struct monitor_connection *known = &monitor->known_connections[index];
	struct monitor_before *before = &known->before;

	if (!known->number)
		known->number = ++monitor->last_number;
	known->is_leaving = monitor_load(&connection->ended_ns);
	*row = (struct monitor_connection_row){
		.number = known->number,
		.learnt_ns = connection->learnt_ns,
		.ip_version = connection->ip_version,
		.server_qpn = connection->server_qpn,
		.client_qpn = connection->client_qpn,
		.credits_asked = connection->flows[LDMA_MONITOR_TO_SERVER].credits,
		.credits_granted = connection->flows[LDMA_MONITOR_TO_CLIENT].credits,
		.read_bytes = monitor_added(&connection->counts.read_bytes, &before->read_bytes),
		.written_bytes =
			monitor_added(&connection->counts.written_bytes, &before->written_bytes),
		.rnr_naks = monitor_added(&connection->rnr_naks, &before->rnr_naks),
		.naks = monitor_added(&connection->naks, &before->naks),
		.retransmissions =
			monitor_added(&connection->retransmissions, &before->retransmissions),
	};
	memcpy(row->server, connection->server, 16);
	memcpy(row->client, connection->client, 16);
	row->unanswered = look_at_calls(monitor, index, now_ns, known->is_leaving, &row->in_flight);
	monitor_look_at_times(&connection->counts, &connection->times, &before->times, &row->times);
}

/* If all places are taken, ends the connection that was idle for longest, if that was long enough. */
static void make_room(struct monitor *monitor, uint32_t count, uint64_t now_ns)
{
	struct ldma_monitor_connection *oldest = NULL;

	if (count < monitor->options.connections)
		return;
	for (uint32_t i = 0; i < monitor->options.connections; i++) {
		struct ldma_monitor_connection *one = &monitor->connections[i];

		if (monitor_load(&one->ended_ns) || monitor->known_connections[i].is_leaving)
			return; /* a place will become free by itself */
		if (monitor->connection_rows[monitor->known_connections[i].row].in_flight)
			continue;
		if (!oldest ||
		    monitor_load(&one->counts.last_ns) < monitor_load(&oldest->counts.last_ns))
			oldest = one;
	}
	/* A reply may have come after now_ns was read. */
	if (!oldest || monitor_load(&oldest->counts.last_ns) + monitor->options.idle_ns > now_ns)
		return;
	monitor_forget_places(monitor, (uint32_t)(oldest - monitor->connections));
	oldest->ended_ns = now_ns;
}

static uint32_t look_at_connections(struct monitor *monitor, uint64_t now_ns)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < monitor->options.connections; i++) {
		struct ldma_monitor_connection *connection = &monitor->connections[i];
		struct monitor_connection *known = &monitor->known_connections[i];
		uint64_t ended_ns;

		if (!__atomic_load_n(&connection->began_ns, __ATOMIC_ACQUIRE))
			continue;
		ended_ns = monitor_load(&connection->ended_ns);
		if (known->is_leaving) {
			if (now_ns - ended_ns > GRACE_NS)
				monitor_free_connection(monitor, i);
			continue;
		}
		known->row = count;
		look_at_connection(monitor, i, now_ns, &monitor->connection_rows[count++]);
	}
	make_room(monitor, count, now_ns);
	return count;
}

/* Fills in the session's connections that still live. */
static void look_at_uses(struct monitor *monitor, struct ldma_monitor_session *session,
			 struct monitor_session *known, struct monitor_session_row *row)
{
	uint64_t now[WORDS], any = 0;

	for (uint32_t i = 0; i < WORDS; i++) {
		now[i] = session->connections[i]
				 ? __atomic_exchange_n((uint64_t *)&session->connections[i], 0,
						       __ATOMIC_RELAXED)
				 : 0;
		any |= now[i];
	}
	if (any)
		memcpy(known->connections, now, sizeof(now));
	memset(row->connections, 0, sizeof(row->connections));
	for (uint32_t i = 0; i < WORDS; i++) {
		for (uint64_t left = known->connections[i]; left; left &= left - 1) {
			uint32_t index = i * 64 + (uint32_t)__builtin_ctzll(left);
			const struct monitor_connection *connection =
				&monitor->known_connections[index];

			if (!connection->number || connection->is_leaving) {
				known->connections[i] &= ~(left & -left);
				if (!connection->number)
					continue;
			}
			row->connections[connection->row / 64] |= 1ull << connection->row % 64;
			monitor->connection_rows[connection->row].sessions++;
		}
	}
}

static bool is_alone(const struct monitor_session *known)
{
	uint64_t any = 0;

	for (uint32_t i = 0; i < WORDS; i++)
		any |= known->connections[i];
	return !any;
}

static uint32_t look_at_sessions(struct monitor *monitor, uint64_t now_ns)
{
	uint32_t count = 0, high = monitor_sessions_high(monitor);

	for (uint32_t i = 0; i < high && i < monitor->options.sessions; i++) {
		struct ldma_monitor_session *session = &monitor->sessions[i];
		struct monitor_session *known = &monitor->known_sessions[i];
		struct monitor_session_row *row = &monitor->session_rows[count];
		uint64_t last_ns = monitor_load(&session->counts.last_ns), idle_ns;

		if (!last_ns)
			continue;
		idle_ns = now_ns > last_ns ? now_ns - last_ns : 0;
		if (known->is_leaving) {
			/* No program finds it any more; calls that had found it have to end first. */
			if (!known->in_flight && idle_ns > GRACE_NS)
				monitor_free_session(monitor, i);
			continue;
		}
		*row = (struct monitor_session_row){
			.in_flight = known->in_flight,
			.read_bytes = monitor_added(&session->counts.read_bytes,
						    &known->before.read_bytes),
			.written_bytes = monitor_added(&session->counts.written_bytes,
						       &known->before.written_bytes),
		};
		memcpy(row->id, session->id, 16);
		monitor_look_at_times(&session->counts, &session->times, &known->before.times,
				      &row->times);
		look_at_uses(monitor, session, known, row);
		count++;
		if (!known->in_flight && !row->times.count &&
		    idle_ns > monitor->options.idle_ns / (is_alone(known) ? 16 : 1)) {
			monitor_forget_session(monitor, i);
			known->is_leaving = true;
		}
	}
	return count;
}

void monitor_look(struct monitor *monitor, struct monitor_view *ret)
{
	uint64_t now_ns = (uint64_t)ldma_clock_ns(CLOCK_MONOTONIC);
	uint32_t high = monitor_sessions_high(monitor);

	for (uint32_t i = 0; i < high && i < monitor->options.sessions; i++)
		monitor->known_sessions[i].in_flight = 0;
	*ret = (struct monitor_view){
		.connection_count = look_at_connections(monitor, now_ns),
		.session_count = look_at_sessions(monitor, now_ns),
		.connections = monitor->connection_rows,
		.sessions = monitor->session_rows,
		.losses = monitor_losses(monitor),
	};
}
