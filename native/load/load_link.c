/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection has a queue of slots that wait for it, and ends the calls that were made there. */
#include <errno.h>
#include <stdlib.h>

#include "base/wake.h"
#include "load/load_internal.h"

struct load_link *load_link_create(struct ldma_load *load)
{
	struct load_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->load = load;
	link->number = load->link_count;
	link->calls_end = &link->calls;
	return link;
}

static void free_calls(struct load_call *call)
{
	while (call) {
		struct load_call *next = call->next;

		free(call->message);
		free(call->reply);
		free(call);
		call = next;
	}
}

void load_link_destroy(struct load_link *link)
{
	struct ldma_answer answer;

	if (link->load->config.port) {
		link->caller.error = -ECONNRESET;
		while (ldma_caller_end_one(&link->caller, &answer))
			if (answer.user & 1)
				free_calls((struct load_call *)(uintptr_t)(answer.user &
									   ~UINT64_C(1)));
		ldma_caller_destroy(&link->caller);
	} else {
		load_tcp_close(link);
	}
	free_calls(link->calls);
	free(link);
}

void load_link_queue(struct load_link *link, struct load_slot *slot)
{
	struct load_queue *queue = &link->queue;

	if (link->error) { /* a call ended elsewhere, and its session is lost */
		load_slot_hold(slot);
		return;
	}
	slot->state = SLOT_QUEUED;
	slot->next = NULL;
	if (link->load->is_stopping)
		return;
	if (queue->first)
		queue->last->next = slot;
	else
		queue->first = slot;
	queue->last = slot;
	if (!queue->fresh)
		queue->fresh = slot;
}

void load_link_stamp(struct load_link *link, uint64_t now_ns)
{
	for (struct load_slot *slot = link->queue.fresh; slot; slot = slot->next) {
		slot->queued_ns = now_ns;
		if (!slot->started_ns)
			slot->started_ns = now_ns;
	}
	link->queue.fresh = NULL;
}

struct load_slot *load_link_take(struct load_link *link)
{
	struct load_slot *slot = link->queue.first;

	if (slot)
		link->queue.first = slot->next;
	return slot;
}

struct load_call *load_link_take_call(struct load_link *link)
{
	struct load_call *call = link->calls;

	if (!call)
		return NULL;
	link->calls = call->next;
	if (!link->calls)
		link->calls_end = &link->calls;
	call->next = NULL;
	return call;
}

static void end_call(struct ldma_load *load, struct load_call *call, int error,
		     const uint8_t *message, uint32_t length)
{
	call->error = error;
	if (!error) {
		call->reply = malloc(length);
		if (call->reply)
			memcpy(call->reply, message, length);
		else
			call->error = -ENOMEM;
		call->reply_length = length;
	}
	*load->replies_end = call;
	load->replies_end = &call->next;
	ldma_signal(load->event_fd);
}

void load_link_ended(struct load_link *link, uint64_t user, int error, const uint8_t *message,
		     uint32_t length, const uint8_t *placed, uint32_t placed_length,
		     uint64_t now_ns)
{
	struct load_slot *slot;

	link->open--;
	if (user & 1) {
		end_call(link->load, (struct load_call *)(uintptr_t)(user & ~UINT64_C(1)), error,
			 message, length);
		return;
	}
	slot = (struct load_slot *)(uintptr_t)user;
	if (error) {
		load_slot_lost(slot, link, error, now_ns);
		return;
	}
	load_session_heard(slot->session, link, now_ns);
	load_slot_replied(slot, message, length, placed, placed_length, now_ns);
}

void load_link_fail(struct load_link *link, int error, uint64_t now_ns)
{
	struct load_slot *slot;
	struct load_call *call;

	link->error = error;
	link->queue.fresh = NULL;
	while ((slot = load_link_take(link)))
		load_slot_lost(slot, link, error, now_ns);
	while ((call = load_link_take_call(link)))
		end_call(link->load, call, error, NULL, 0);
	load_hold_delayed(link);
	for (uint32_t i = 0; i < link->load->session_count; i++)
		if (link->load->sessions[i]->link == link)
			load_session_lose(link->load->sessions[i]);
	ldma_signal(link->load->event_fd);
}
