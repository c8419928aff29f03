/* SPDX-License-Identifier: BSD-2-Clause */
/* Moves sessions to another connection, and ends a connection that all its sessions have left. */
#include <errno.h>

#include "load/load_internal.h"

/* Moves the session's slots from the queue of one connection to that of another. The time that they have waited already
 * still counts. */
static void move_queued(struct load_session *session, struct load_link *from, struct load_link *to,
			uint64_t now_ns)
{
	struct load_slot **at = &from->queue.first, *last = NULL;

	load_link_stamp(from, now_ns);
	load_link_stamp(to, now_ns);
	while (*at) {
		struct load_slot *slot = *at;

		if (slot->session != session) {
			last = slot;
			at = &slot->next;
			continue;
		}
		*at = slot->next;
		load_link_queue(to, slot);
		to->queue.fresh = NULL;
	}
	from->queue.last = last;
}

static void move(struct load_session *session, struct load_link *to, uint64_t now_ns)
{
	struct load_link *from = session->link;

	session->link = to;
	session->is_moving = true;
	move_queued(session, from, to, now_ns);
}

static int move_session(struct ldma_load *load, uint32_t number, uint32_t link)
{
	struct load_session *session;
	struct load_link *to;

	if (number >= load->session_count || link >= load->link_count)
		return -EINVAL;
	session = load->sessions[number];
	to = load->links[link];
	if (session->phase >= SESSION_LOST || to->error)
		return -ENOTCONN;
	if (session->link == to)
		return 0;
	session->figures.moves++;
	move(session, to, load_now());
	return 0;
}

int ldma_load_move_session(struct ldma_load *load, uint32_t session, uint32_t link)
{
	int error;

	load_visit(load);
	error = move_session(load, session, link);
	load_leave(load);
	load_wake(load);
	return error;
}

void load_link_abandon(struct load_link *link, uint64_t now_ns)
{
	struct ldma_load *load = link->load;
	struct load_link *refuge = link->refuge;

	if (!refuge || refuge->error)
		return;
	for (uint32_t i = 0; i < load->session_count; i++)
		if (load->sessions[i]->link == link && load->sessions[i]->phase < SESSION_LOST)
			move(load->sessions[i], refuge, now_ns);
}

int ldma_load_pair(struct ldma_load *load, uint32_t link, uint32_t other)
{
	int error = -EINVAL;

	load_visit(load);
	if (link < load->link_count && other < load->link_count && link != other) {
		load->links[link]->refuge = load->links[other];
		load->links[other]->refuge = load->links[link];
		error = 0;
	}
	load_leave(load);
	return error;
}

void load_session_heard(struct load_session *session, const struct load_link *link, uint64_t now_ns)
{
	struct ldma_load_session_figures *figures = &session->figures;
	uint64_t *longest = session->is_moving ? &figures->pause_ns : &figures->gap_ns;
	uint64_t gap_ns = now_ns - session->heard_ns;

	if (session->heard_ns && gap_ns > *longest)
		*longest = gap_ns;
	if (session->phase == SESSION_RUNNING)
		session->heard_ns = session->load->heard_ns = now_ns;
	if (link == session->link)
		session->is_moving = false;
}

static bool is_used(const struct load_link *link)
{
	const struct ldma_load *load = link->load;

	if (link->open || link->calls || link->queue.first)
		return true;
	for (uint32_t i = 0; i < load->session_count; i++)
		if (load->sessions[i]->link == link && load->sessions[i]->phase < SESSION_LOST)
			return true;
	return false;
}

static int close_link(struct ldma_load *load, uint32_t number)
{
	struct load_link *link;

	if (number >= load->link_count)
		return -EINVAL;
	link = load->links[number];
	if (link->error)
		return 0;
	if (is_used(link))
		return -EBUSY;
	if (!load->config.port)
		load_tcp_leave(link);
	link->error = link->caller.error = -ESHUTDOWN;
	return 0;
}

int ldma_load_close_link(struct ldma_load *load, uint32_t link)
{
	int error;

	load_visit(load);
	error = close_link(load, link);
	load_leave(load);
	return error;
}

void ldma_load_set_active(struct ldma_load *load, uint32_t sessions)
{
	uint64_t now_ns = load_now();
	uint32_t before;

	load_visit(load);
	before = load->active;
	load->active = sessions;
	for (uint32_t i = before; i < sessions && i < load->session_count; i++)
		load_session_resume(load->sessions[i], now_ns);
	load_leave(load);
	load_wake(load);
}
