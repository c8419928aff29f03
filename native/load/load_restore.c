/* SPDX-License-Identifier: BSD-2-Clause */
/* Lets sessions go on whose connection broke: by another connection, or in another session. */
#include <errno.h>

#include "load/load_internal.h"

void load_hold_delayed(const struct load_link *link)
{
	struct ldma_load *load = link->load;
	struct load_slot **at = &load->delayed, *last = NULL;

	while (*at) {
		struct load_slot *slot = *at;

		if (slot->session->link != link) {
			last = slot;
			at = &slot->next;
			continue;
		}
		*at = slot->next;
		if (slot->has_operation)
			load_slot_hold(slot);
		else
			load_slot_idle(slot);
	}
	load->delayed_last = last;
}

/* Returns 0 if the session can go on by that connection, or an error. */
static int can_restore(const struct ldma_load *load, uint32_t number, uint32_t link)
{
	if (number >= load->session_count || link >= load->link_count ||
	    load->sessions[number]->phase != SESSION_LOST)
		return -EINVAL;
	return load->links[link]->error ? -ENOTCONN : 0;
}

/* Gives the session a connection again; the caller sets its phase. */
static void find_again(struct load_session *session, uint32_t link)
{
	session->link = session->load->links[link];
	session->load->lost--;
}

static void resume(struct load_session *session, uint32_t link, uint64_t now_ns)
{
	struct ldma_load *load = session->load;
	struct load_slot *slot;

	find_again(session, link);
	session->phase = session->lost_phase;
	load->running += session->phase == SESSION_RUNNING;
	while ((slot = session->held)) {
		session->held = slot->next;
		session->figures.counters.repeats++;
		load->counters.repeats++;
		load_link_queue(session->link, slot);
	}
	if (session->phase == SESSION_READY && load->has_begun) /* while it was lost */
		load_session_begin(session, now_ns);
	else
		load_session_feed(session, now_ns);
}

int ldma_load_resume_session(struct ldma_load *load, uint32_t session, uint32_t link)
{
	int error;

	load_visit(load);
	error = can_restore(load, session, link);
	if (!error)
		resume(load->sessions[session], link, load_now());
	load_leave(load);
	load_wake(load);
	return error;
}

/* Returns whether a slot's call went by another connection, and is out there or was answered with a delay. */
static bool has_slot_elsewhere(const struct load_session *session)
{
	for (uint32_t i = 0; i < session->slot_count; i++)
		if (session->slots[i].state == SLOT_OPEN || session->slots[i].state == SLOT_DELAYED)
			return true;
	return false;
}

static void renew(struct load_session *session, const struct ldma_load_session_config *config,
		  uint64_t now_ns)
{
	struct ldma_load *load = session->load;
	bool was_filled = session->lost_phase != SESSION_FILLING;

	for (uint32_t i = 0; i < session->slot_count; i++)
		if (session->slots[i].has_operation)
			load_slot_drop(&session->slots[i]);
	load_session_reset(session, config);
	memcpy(session->id, config->target.session, sizeof(session->id));
	find_again(session, config->link);
	if (load->config.rw == LDMA_LOAD_WRITE) {
		session->phase = SESSION_READY;
		if (load->has_begun)
			load_session_begin(session, now_ns);
		return;
	}
	load->filled -= was_filled;
	session->phase = SESSION_FILLING;
	session->fill_next = session->fill_done = 0;
	load_session_feed(session, now_ns);
}

/* Renews a session. The templates are the last step that can fail: a session that cannot be renewed stays as it was. */
static int try_renew(struct ldma_load *load, uint32_t number,
		     const struct ldma_load_session_config *config)
{
	int error = can_restore(load, number, config->link);
	struct ldma_io_template read, write;
	struct load_session *session;

	if (error)
		return error;
	session = load->sessions[number];
	if (has_slot_elsewhere(session))
		return -EBUSY;
	if (!config->slots || ldma_io_template_init(&read, &config->target, false) ||
	    ldma_io_template_init(&write, &config->target, true))
		return -EINVAL;
	session->read = read;
	session->write = write;
	renew(session, config, load_now());
	return 0;
}

int ldma_load_renew_session(struct ldma_load *load, uint32_t session,
			    const struct ldma_load_session_config *config)
{
	int error;

	load_visit(load);
	error = try_renew(load, session, config);
	load_leave(load);
	load_wake(load);
	return error;
}
