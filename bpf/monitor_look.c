/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "base/log_linear.h"
#include "bpf/monitor_internal.h"
#include "bpf/wall_clock.h"

#define WORDS (LDMA_MONITOR_CONNECTIONS / 64)
#define GRACE_NS 20000000u /* after it no program still works on an ended connection or session */

static uint64_t load64(const __u64 *value)
{
	return __atomic_load_n((const uint64_t *)value, __ATOMIC_RELAXED);
}

/* Returns what was added to a counter since the look before. */
static uint64_t added(const __u64 *counter, uint64_t *before)
{
	uint64_t now = load64(counter), ret = now - *before;

	*before = now;
	return ret;
}

/* Returns the middle of the step that holds the nth of the sorted times; n counts from 1. */
static uint64_t nth_ns(const uint32_t *steps, uint64_t touched, uint64_t n)
{
	uint64_t sum = 0;

	for (; touched; touched &= touched - 1) {
		uint32_t first = (uint32_t)__builtin_ctzll(touched) * LDMA_MONITOR_LINE;

		for (uint32_t i = first; i < first + LDMA_MONITOR_LINE; i++) {
			sum += steps[i];
			if (sum >= n)
				return ldma_log_linear_middle_ns(i, LDMA_MONITOR_STEP_BITS,
								 LDMA_MONITOR_UNIT_BITS);
		}
	}
	return 0;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
	return value < most ? value : most;
}

/* Writes what was added to one line of steps, and returns its sum. */
static uint32_t look_at_line(const uint32_t *line, uint32_t *before, uint32_t *ret)
{
	uint32_t now[LDMA_MONITOR_LINE], sum = 0;

	/* Copies the line at once: atomic loads would come one by one. */
	memcpy(now, line, sizeof(now));
	for (uint32_t i = 0; i < LDMA_MONITOR_LINE; i++) {
		ret[i] = now[i] - before[i];
		sum += ret[i];
	}
	memcpy(before, now, sizeof(now));
	return sum;
}

static void look_at_times(struct ldma_monitor_counts *counts, struct ldma_monitor_times *times,
			  struct monitor_before *before, struct monitor_times *ret)
{
	uint64_t touched = load64(&counts->touched);
	uint32_t steps[LDMA_MONITOR_STEPS]; /* of lines that were touched */

	*ret = (struct monitor_times){0};
	if (!touched)
		return;
	touched = __atomic_exchange_n((uint64_t *)&counts->touched, 0, __ATOMIC_ACQ_REL);
	for (uint64_t left = touched; left; left &= left - 1) {
		uint32_t first = (uint32_t)__builtin_ctzll(left) * LDMA_MONITOR_LINE;

		ret->count +=
			look_at_line(times->steps + first, before->steps + first, steps + first);
	}
	if (!ret->count)
		return;
	ret->sum_ns = added(&counts->sum_ns, &before->sum_ns);
	ret->max_ns = __atomic_exchange_n((uint64_t *)&counts->max_ns, 0, __ATOMIC_RELAXED);
	ret->p50_ns = at_most(nth_ns(steps, touched, (ret->count + 1) / 2), ret->max_ns);
	ret->p99_ns = at_most(nth_ns(steps, touched, ret->count - ret->count / 100), ret->max_ns);
}

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
			age_ns = (int64_t)(now_ns - load64(&row->start_ns[j]));
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
	known->is_leaving = load64(&connection->ended_ns);
	*row = (struct monitor_connection_row){
		.number = known->number,
		.learnt_ns = connection->learnt_ns,
		.ip_version = connection->ip_version,
		.server_qpn = connection->server_qpn,
		.client_qpn = connection->client_qpn,
		.credits_asked = connection->flows[LDMA_MONITOR_TO_SERVER].credits,
		.credits_granted = connection->flows[LDMA_MONITOR_TO_CLIENT].credits,
		.read_bytes = added(&connection->counts.read_bytes, &before->read_bytes),
		.written_bytes = added(&connection->counts.written_bytes, &before->written_bytes),
		.rnr_naks = added(&connection->rnr_naks, &before->rnr_naks),
		.naks = added(&connection->naks, &before->naks),
		.retransmissions = added(&connection->retransmissions, &before->retransmissions),
	};
	memcpy(row->server, connection->server, 16);
	memcpy(row->client, connection->client, 16);
	row->unanswered = look_at_calls(monitor, index, now_ns, known->is_leaving, &row->in_flight);
	look_at_times(&connection->counts, &connection->times, before, &row->times);
}

/* If all places are taken, ends the connection that was idle for longest, if that was long enough. */
static void make_room(struct monitor *monitor, uint32_t count, uint64_t now_ns)
{
	struct ldma_monitor_connection *oldest = NULL;

	if (count < monitor->options.connections)
		return;
	for (uint32_t i = 0; i < monitor->options.connections; i++) {
		struct ldma_monitor_connection *one = &monitor->connections[i];

		if (load64(&one->ended_ns) || monitor->known_connections[i].is_leaving)
			return; /* a place will become free by itself */
		if (monitor->connection_rows[monitor->known_connections[i].row].in_flight)
			continue;
		if (!oldest || load64(&one->counts.last_ns) < load64(&oldest->counts.last_ns))
			oldest = one;
	}
	/* A reply may have come after now_ns was read. */
	if (!oldest || load64(&oldest->counts.last_ns) + monitor->options.idle_ns > now_ns)
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
		ended_ns = load64(&connection->ended_ns);
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
		uint64_t last_ns = load64(&session->counts.last_ns), idle_ns;

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
			.read_bytes = added(&session->counts.read_bytes, &known->before.read_bytes),
			.written_bytes =
				added(&session->counts.written_bytes, &known->before.written_bytes),
		};
		memcpy(row->id, session->id, 16);
		look_at_times(&session->counts, &session->times, &known->before, &row->times);
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
