/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "bpf/nfsd_internal.h"
#include "bpf/wall_clock.h"

#define WORDS (LDMA_MONITOR_CONNECTIONS / 64)
#define GRACE_NS 100000000u /* after it no program still works on an ended connection or session */

static void look_at_times(struct ldma_nfsd_times *times, struct monitor_times_before *before,
			  struct monitor_times *ret)
{
	monitor_look_at_times(&times->counts, &times->times, before, ret);
}

static void look_at_connection(struct ldma_nfsd_connection *one, struct nfsd_connection *known,
			       struct nfsd_connection_row *row)
{
	*row = (struct nfsd_connection_row){
		.number = known->number,
		.kind = one->kind,
		.ip_version = one->ip_version,
		.client_port = one->client_port,
		.server_qpn = one->server_qpn,
		.executing = one->executing,
		.in_flight = one->kind == LDMA_NFSD_RDMA ? one->in_flight : one->executing,
		.credits_asked = one->credits_asked,
		.credits_granted = one->credits_granted,
		.read_bytes = monitor_added(&one->calls.counts.read_bytes, &known->read_bytes),
		.written_bytes =
			monitor_added(&one->calls.counts.written_bytes, &known->written_bytes),
		.serving_ns = monitor_added(&one->serving_ns, &known->serving_ns),
		.last_credits = monitor_added(&one->last_credits, &known->last_credits),
		.contexts_made = monitor_added(&one->contexts_made, &known->contexts_made),
		.receives_failed = monitor_added(&one->receives_failed, &known->receives_failed),
	};
	memcpy(row->server, one->server, 16);
	memcpy(row->client, one->client, 16);
	look_at_times(&one->calls, &known->calls, &row->calls);
	look_at_times(&one->thread_waits, &known->thread_waits, &row->thread_waits);
	look_at_times(&one->fetches, &known->fetches, &row->fetches);
	look_at_times(&one->storage, &known->storage, &row->storage);
	look_at_times(&one->send_waits, &known->send_waits, &row->send_waits);
}

static uint32_t look_at_connections(struct nfsd_session *session, uint64_t now_ns)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < session->options.connections; i++) {
		struct ldma_nfsd_connection *one = &session->connections[i];
		struct nfsd_connection *known = &session->known_connections[i];
		uint64_t ended_ns;

		if (!__atomic_load_n(&one->began_ns, __ATOMIC_ACQUIRE))
			continue;
		ended_ns = monitor_load(&one->ended_ns);
		if (known->is_leaving) {
			known->number = 0; /* no session names it any more */
			if (now_ns > ended_ns + GRACE_NS)
				nfsd_free_connection(session, i);
			continue;
		}
		if (!known->number)
			known->number = ++session->last_number;
		known->is_leaving = ended_ns;
		known->row = count;
		look_at_connection(one, known, &session->connection_rows[count++]);
	}
	return count;
}

/* Fills in the session's connections that still live. */
static void look_at_uses(struct nfsd_session *session, struct ldma_nfsd_session *one,
			 struct nfsd_known_session *known, struct nfsd_session_row *row)
{
	uint64_t now[WORDS], any = 0;

	for (uint32_t i = 0; i < WORDS; i++) {
		now[i] = __atomic_exchange_n((uint64_t *)&one->connections[i], 0, __ATOMIC_RELAXED);
		any |= now[i];
	}
	if (any)
		memcpy(known->connections, now, sizeof(now));
	for (uint32_t i = 0; i < WORDS; i++) {
		for (uint64_t left = known->connections[i]; left; left &= left - 1) {
			uint32_t index = i * 64 + (uint32_t)__builtin_ctzll(left);
			const struct nfsd_connection *used = &session->known_connections[index];

			if (!used->number || used->is_leaving) {
				known->connections[i] &= ~(left & -left);
				if (!used->number)
					continue;
			}
			row->connections[used->row / 64] |= 1ull << used->row % 64;
			session->connection_rows[used->row].sessions++;
		}
	}
}

/* Returns whether the session is to be shown; one that was idle for long is forgotten. */
static bool look_at_session(struct nfsd_session *session, uint32_t index, uint64_t now_ns,
			    struct nfsd_session_row *row)
{
	struct ldma_nfsd_session *one = &session->sessions[index];
	struct nfsd_known_session *known = &session->known_sessions[index];
	uint64_t last_ns = monitor_load(&one->calls.counts.last_ns), idle_ns;

	if (!last_ns)
		return false;
	idle_ns = now_ns > last_ns ? now_ns - last_ns : 0;
	if (known->is_leaving) {
		/* No program finds it any more; calls that had found it have to end first. */
		if (!one->executing && idle_ns > GRACE_NS)
			nfsd_free_session(session, index);
		return false;
	}
	*row = (struct nfsd_session_row){
		.in_flight = one->executing,
		.read_bytes = monitor_added(&one->calls.counts.read_bytes, &known->read_bytes),
		.written_bytes =
			monitor_added(&one->calls.counts.written_bytes, &known->written_bytes),
	};
	memcpy(row->id, one->id, 16);
	look_at_times(&one->calls, &known->times, &row->times);
	look_at_uses(session, one, known, row);
	if (!row->in_flight && !row->times.count && idle_ns > session->options.idle_ns) {
		nfsd_forget_session(session, index);
		known->is_leaving = true;
	}
	return true;
}

void nfsd_look(struct nfsd_session *session, struct nfsd_view *ret)
{
	uint64_t now_ns = (uint64_t)ldma_clock_ns(CLOCK_MONOTONIC);

	*ret = (struct nfsd_view){
		.connection_count = look_at_connections(session, now_ns),
		.connections = session->connection_rows,
		.sessions = session->session_rows,
		.threads = nfsd_threads(session),
		.losses = nfsd_losses(session),
	};
	for (uint32_t i = 0; i < session->options.sessions; i++)
		ret->session_count += look_at_session(session, i, now_ns,
						      &session->session_rows[ret->session_count]);
}
