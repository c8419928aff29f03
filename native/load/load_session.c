/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions: which one's turn it is, and at which place of its file. */
#include <errno.h>
#include <stdlib.h>

#include "load/load_internal.h"

#define WRITER 255
#define DELAY_NS UINT64_C(10000000)
#define NEVER UINT64_MAX

int load_session_create(struct ldma_load *load, const struct ldma_load_session_config *config,
			struct load_session **ret)
{
	uint64_t blocks = config->file_bytes / load->config.size;
	struct load_session *session;

	if (!config->slots || blocks < load->config.depth || blocks > UINT32_MAX)
		return -EINVAL;
	session = calloc(1, sizeof(*session));
	if (!session)
		return -ENOMEM;
	session->load = load;
	session->link = load->links[config->link];
	session->slot_count = load->config.depth;
	session->blocks = (uint32_t)blocks;
	session->seed = config->seed;
	session->random = config->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	session->phase = load->config.rw == LDMA_LOAD_WRITE ? SESSION_READY : SESSION_FILLING;
	memcpy(session->id, config->target.session, sizeof(session->id));
	session->slots = calloc(session->slot_count, sizeof(*session->slots));
	session->generations = calloc(blocks, sizeof(*session->generations));
	session->users = calloc(blocks, sizeof(*session->users));
	if (ldma_io_template_init(&session->read, &config->target, false) ||
	    ldma_io_template_init(&session->write, &config->target, true)) {
		load_session_destroy(session);
		return -EINVAL;
	}
	if (!session->slots || !session->generations || !session->users) {
		load_session_destroy(session);
		return -ENOMEM;
	}
	load_session_reset(session, config);
	*ret = session;
	return 0;
}

void load_session_reset(struct load_session *session, const struct ldma_load_session_config *config)
{
	session->idle = session->held = NULL;
	session->lingering = 0;
	session->limit = config->slots < session->slot_count ? config->slots : session->slot_count;
	session->most = session->limit;
	for (uint32_t i = session->slot_count; i-- > 0;) {
		struct load_slot *slot = &session->slots[i];

		*slot = (struct load_slot){.session = session, .number = i};
		if (i >= session->limit) { /* the server may want the slot later */
			slot->state = SLOT_PARKED;
			continue;
		}
		slot->sequence = config->sequences ? config->sequences[i] : 0;
		slot->next = session->idle;
		session->idle = slot;
	}
}

void load_session_destroy(struct load_session *session)
{
	free(session->slots);
	free(session->generations);
	free(session->users);
	free(session);
}

/* The heap of sessions that have an idle slot and wait for their time. */

static void heap_place(struct ldma_load *load, struct load_session *session, uint32_t at)
{
	load->heap[at] = session;
	session->heap_at = at;
}

static void heap_add(struct ldma_load *load, struct load_session *session)
{
	uint32_t at = ++load->heap_count;

	for (; at > 1 && load->heap[at / 2]->due_ns > session->due_ns; at /= 2)
		heap_place(load, load->heap[at / 2], at);
	heap_place(load, session, at);
}

static struct load_session *heap_take(struct ldma_load *load)
{
	struct load_session *first = load->heap[1], *last = load->heap[load->heap_count--];
	uint32_t at = 1, child;

	first->heap_at = 0;
	if (last == first)
		return first;
	while ((child = 2 * at) <= load->heap_count) {
		if (child < load->heap_count &&
		    load->heap[child + 1]->due_ns < load->heap[child]->due_ns)
			child++;
		if (load->heap[child]->due_ns >= last->due_ns)
			break;
		heap_place(load, load->heap[child], at);
		at = child;
	}
	heap_place(load, last, at);
	return first;
}

static uint64_t next_random(struct load_session *session)
{
	session->random ^= session->random >> 12;
	session->random ^= session->random << 25;
	session->random ^= session->random >> 27;
	return session->random * UINT64_C(0x2545f4914f6cdd1d);
}

/* Takes a place that the operation may use: no operation writes there, and a writer is alone. There are more places
 * than slots. */
static uint32_t take_block(struct load_session *session, bool is_write)
{
	bool is_sequential = session->load->config.is_sequential;
	uint32_t block = is_sequential ? session->cursor
				       : (uint32_t)(next_random(session) % session->blocks);

	while (is_write ? session->users[block] : session->users[block] >= WRITER - 1)
		block = (block + 1) % session->blocks;
	session->cursor = (block + 1) % session->blocks;
	return block;
}

static void begin(struct load_slot *slot, uint64_t intended_ns)
{
	struct load_session *session = slot->session;
	uint8_t rw = session->load->config.rw;

	slot->is_fill = session->phase == SESSION_FILLING;
	slot->is_write = slot->is_fill || rw == LDMA_LOAD_WRITE ||
			 (rw == LDMA_LOAD_MIX && next_random(session) >> 63);
	slot->block = slot->is_fill ? session->fill_next++ : take_block(session, slot->is_write);
	slot->generation = session->generations[slot->block];
	if (slot->is_write) {
		slot->generation++;
		session->users[slot->block] = WRITER;
	} else {
		session->users[slot->block]++;
	}
	slot->done = 0;
	slot->has_operation = true;
	slot->started_ns = intended_ns;
	load_link_queue(session->link, slot);
}

static void park(struct load_slot *slot)
{
	slot->state = SLOT_PARKED;
	slot->retired = slot->sequence;
}

static struct load_slot *take_idle(struct load_session *session)
{
	struct load_slot *slot = session->idle;

	if (slot)
		session->idle = slot->next;
	return slot;
}

void load_slot_idle(struct load_slot *slot)
{
	slot->state = SLOT_IDLE;
	slot->next = slot->session->idle;
	slot->session->idle = slot;
}

/* Returns whether there is something to do for an idle slot, and since when. */
static bool has_work(struct load_session *session, uint64_t now_ns, uint64_t *ret_intended_ns)
{
	const struct ldma_load *load = session->load;

	*ret_intended_ns = 0;
	if (session->link->error || load->is_stopping)
		return false;
	if (session->phase == SESSION_FILLING)
		return session->fill_next < session->blocks;
	if (session->phase != SESSION_RUNNING || session->number >= load->active)
		return false;
	if (!load->config.interval_ns)
		return true;
	if (session->due_ns > now_ns)
		return false;
	*ret_intended_ns = session->due_ns;
	return true;
}

void load_session_feed(struct load_session *session, uint64_t now_ns)
{
	struct ldma_load *load = session->load;
	uint64_t intended_ns;
	struct load_slot *slot;

	while (has_work(session, now_ns, &intended_ns)) {
		slot = take_idle(session);
		if (!slot)
			return;
		if (intended_ns)
			session->due_ns += load->config.interval_ns;
		begin(slot, intended_ns);
	}
	if (session->due_ns > now_ns && session->phase == SESSION_RUNNING && session->idle &&
	    !session->heap_at)
		heap_add(load, session);
}

void load_session_begin(struct load_session *session, uint64_t now_ns)
{
	struct ldma_load *load = session->load;

	session->phase = SESSION_RUNNING;
	load->running++;
	if (!session->figures
		     .began_ns) /* else it was lost meanwhile: operations that it missed are owed */
		session->figures.began_ns = session->heard_ns = now_ns;
	/* At a rate, sessions do not start all at once: they are spread over the time between two operations of one. */
	if (load->config.interval_ns && !session->due_ns)
		session->due_ns = now_ns + next_random(session) % load->config.interval_ns;
	load_session_feed(session, now_ns);
}

void load_session_resume(struct load_session *session, uint64_t now_ns)
{
	if (session->phase != SESSION_RUNNING)
		return;
	session->heard_ns = now_ns;
	if (session->due_ns < now_ns) /* operations that it missed meanwhile are not owed */
		session->due_ns = now_ns;
	load_session_feed(session, now_ns);
}

void load_slot_delay(struct load_slot *slot, uint64_t now_ns)
{
	struct ldma_load *load = slot->session->load;

	slot->state = SLOT_DELAYED;
	slot->delayed_ns = now_ns + DELAY_NS;
	slot->next = NULL;
	if (load->delayed)
		load->delayed_last->next = slot;
	else
		load->delayed = slot;
	load->delayed_last = slot;
}

void load_slot_rest(struct load_slot *slot, uint64_t now_ns)
{
	struct load_session *session = slot->session;

	if (slot->number < session->limit) {
		load_slot_idle(slot);
	} else {
		park(slot);
		session->lingering--;
	}
	load_session_feed(session, now_ns);
}

uint64_t load_sessions_tick(struct ldma_load *load, uint64_t now_ns)
{
	while (load->delayed && (load->delayed->delayed_ns <= now_ns || load->is_stopping)) {
		struct load_slot *slot = load->delayed;

		load->delayed = slot->next;
		if (slot->has_operation && !load->is_stopping)
			load_link_queue(slot->session->link, slot);
		else
			load_slot_rest(slot, now_ns);
	}
	while (load->heap_count && load->heap[1]->due_ns <= now_ns)
		load_session_feed(heap_take(load), now_ns);
	if (load->heap_count &&
	    (!load->delayed || load->heap[1]->due_ns < load->delayed->delayed_ns))
		return load->heap[1]->due_ns;
	return load->delayed ? load->delayed->delayed_ns : NEVER;
}

/* Parks the slots beyond the limit; a slot whose operation is not over, as soon as it is. */
static void lower_limit(struct load_session *session, uint32_t limit)
{
	struct load_slot **at = &session->idle;

	while (*at) {
		struct load_slot *slot = *at;

		if (slot->number < limit) {
			at = &slot->next;
			continue;
		}
		*at = slot->next;
		park(slot);
	}
	for (uint32_t i = limit; i < session->limit; i++)
		session->lingering += session->slots[i].state != SLOT_PARKED;
	session->limit = limit;
}

static void raise_limit(struct load_session *session, uint32_t limit)
{
	for (uint32_t i = session->limit; i < limit; i++) {
		struct load_slot *slot = &session->slots[i];

		if (slot->state != SLOT_PARKED) {
			session->lingering--;
			continue;
		}
		slot->sequence = 0; /* RFC 8881, 2.10.6.1: a slot that comes back begins anew */
		slot->is_restarted = true;
		load_slot_idle(slot);
	}
	session->limit = limit;
	if (limit > session->most)
		session->most = limit;
}

/* Sets the limit to the number of slots that the server wants to be used. */
void load_session_follow(struct load_session *session, uint32_t target)
{
	uint32_t limit = target < session->slot_count ? target + 1 : session->slot_count;

	if (limit < session->limit)
		lower_limit(session, limit);
	else if (limit > session->limit)
		raise_limit(session, limit);
}

void load_session_end(struct load_session *session)
{
	if (session->phase == SESSION_FAILED)
		return;
	session->load->running -= session->phase == SESSION_RUNNING;
	session->load->lost -= session->phase == SESSION_LOST;
	session->phase = SESSION_FAILED;
	session->load->failed++;
}

void load_session_lose(struct load_session *session)
{
	if (session->phase == SESSION_FAILED || session->phase == SESSION_LOST)
		return;
	session->load->running -= session->phase == SESSION_RUNNING;
	session->lost_phase = session->phase;
	session->phase = SESSION_LOST;
	session->load->lost++;
}

void load_slot_hold(struct load_slot *slot)
{
	slot->state = SLOT_HELD;
	slot->next = slot->session->held;
	slot->session->held = slot;
}

void load_session_filled(struct load_session *session, uint64_t now_ns)
{
	if (++session->fill_done < session->blocks)
		return;
	session->phase = SESSION_READY;
	session->load->filled++;
	if (session->load->has_begun)
		load_session_begin(session, now_ns);
}
