/* SPDX-License-Identifier: BSD-2-Clause */
/* The load over RDMA: one completion queue for all connections; what is posted together shares trains. */
#include <errno.h>

#include "load/load_internal.h"

#define TOGETHER 16 /* calls that are made before they are posted together */

/* The longest reply to another thread's call: peers refuse chunks that are longer than any reply. */
#define REPLY_MOST (UINT32_C(1) << 20)

struct prepared {
	struct load_slot *slot; /* or */
	struct load_call *call;
	uint32_t number;
};

static void fail(struct load_link *link, uint64_t now_ns)
{
	struct ldma_answer answer;

	if (link->error)
		return;
	link->error = link->caller.error;
	load_link_abandon(link, now_ns);
	while (ldma_caller_end_one(&link->caller, &answer))
		load_link_ended(link, answer.user, answer.error, NULL, 0, NULL, 0, now_ns);
	load_link_fail(link, link->caller.error, now_ns);
}

static uint8_t *buffer(const struct load_link *link, uint32_t number)
{
	return link->data_memory +
	       (uint64_t)number * ldma_load_buffer_bytes(link->load->config.size);
}

static struct ldma_segment segment(const struct load_link *link, uint32_t number, uint32_t length)
{
	uint32_t stride = ldma_load_buffer_bytes(link->load->config.size);

	return (struct ldma_segment){
		.key = link->data_key,
		.length = length,
		.va = link->data_va + (uint64_t)number * stride,
	};
}

static void complete(struct load_link *link, const struct ldma_wc *wc, uint64_t now_ns)
{
	enum ldma_caller_event event;
	struct ldma_answer answer;
	const uint8_t *data, *message;
	uint32_t length;

	event = ldma_caller_complete(&link->caller, wc, &answer);
	if (event == LDMA_CALLER_ENDED) {
		data = buffer(link, answer.number);
		message = answer.message ? answer.message : data;
		length = answer.message ? answer.length : answer.reply_length;
		load_link_ended(link, answer.user, answer.error, message, length, data,
				answer.placed, now_ns);
	}
	if (answer.has_receive)
		link->receives[link->receive_count++] = answer.receive;
	if (event == LDMA_CALLER_BROKEN)
		fail(link, now_ns);
}

uint32_t load_rdma_receive(struct ldma_load *load)
{
	struct ldma_wc wcs[LDMA_LOAD_BATCH];
	uint32_t count = ldma_cq_poll(load->config.cq, wcs, LDMA_LOAD_BATCH);
	uint64_t now_ns = count ? load_now() : 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t number = (uint32_t)(wcs[i].wr_id >> 32);

		if (number < load->link_count)
			complete(load->links[number], &wcs[i], now_ns);
	}
	return count;
}

/* Takes waiting slots and calls, as far as the peer has granted calls. */
static uint32_t prepare(struct load_link *link, struct prepared *ret)
{
	uint32_t count = 0;

	while (count < TOGETHER && (link->calls || link->queue.first)) {
		struct prepared *one = &ret[count];
		int number = ldma_caller_take(&link->caller);

		if (number < 0)
			break;
		one->number = (uint32_t)number;
		one->call = load_link_take_call(link);
		one->slot = one->call ? NULL : load_link_take(link);
		if (one->slot && one->slot->is_write)
			load_slot_fill(one->slot, buffer(link, one->number));
		count++;
	}
	return count;
}

static int post_call(struct load_link *link, const struct prepared *one)
{
	uint32_t bytes = ldma_load_buffer_bytes(link->load->config.size);
	uint32_t room = bytes < REPLY_MOST ? bytes : REPLY_MOST;
	struct ldma_request request = {
		.message = one->call->message,
		.length = one->call->length,
		.reply = segment(link, one->number, room),
		.user = load_user_of_call(one->call),
	};

	return ldma_caller_post(&link->caller, one->number, &request);
}

static int post_slot(struct load_link *link, const struct prepared *one)
{
	struct load_session *session = one->slot->session;
	bool is_write = one->slot->is_write;
	struct ldma_io_template *call = is_write ? &session->write : &session->read;
	struct ldma_request request = {
		.message = call->message,
		.length = call->length,
		.position = call->length,
		.user = load_user_of_slot(one->slot),
	};
	struct ldma_io io;

	load_slot_io(one->slot, &io);
	ldma_io_patch(call, &io);
	*(is_write ? &request.read : &request.write) = segment(link, one->number, io.count);
	return ldma_caller_post(&link->caller, one->number, &request);
}

/* Puts one that could not be sent back to the front of its queue. */
static void put_back(struct load_link *link, const struct prepared *one)
{
	ldma_caller_drop(&link->caller, one->number);
	if (one->call) {
		one->call->next = link->calls;
		if (!link->calls)
			link->calls_end = &one->call->next;
		link->calls = one->call;
		return;
	}
	one->slot->next = link->queue.first;
	if (!link->queue.first)
		link->queue.last = one->slot;
	link->queue.first = one->slot;
}

/* Posts as many as possible. Returns how many, or the negative error of the first that could not be posted. */
static int post_all(struct load_link *link, const struct prepared *made, uint32_t count)
{
	int error = 0;
	uint32_t posted = 0;

	ldma_port_lock(link->load->config.port);
	while (link->receive_count && !error)
		error = ldma_caller_release(&link->caller, link->receives[--link->receive_count]);
	while (posted < count && !error) {
		error = made[posted].slot ? post_slot(link, &made[posted])
					  : post_call(link, &made[posted]);
		posted += !error;
	}
	ldma_port_unlock(link->load->config.port);
	return posted || error == -EAGAIN ? (int)posted : error;
}

static void send_link(struct load_link *link)
{
	struct prepared made[TOGETHER];
	uint64_t now_ns = load_now();
	uint32_t count;
	int posted;

	load_link_stamp(link, now_ns);
	do {
		count = prepare(link, made);
		if (!count && !link->receive_count)
			return;
		posted = post_all(link, made, count);
		for (int i = 0; i < posted; i++) {
			link->open++;
			if (made[i].slot)
				load_slot_sent(made[i].slot, now_ns);
		}
		for (uint32_t i = count; i-- > (uint32_t)(posted < 0 ? 0 : posted);)
			put_back(link, &made[i]);
	} while (posted == TOGETHER);
	if (posted == -EMSGSIZE) /* a call that cannot be sent would block all others */
		link->caller.error = -EMSGSIZE;
	else if (posted < 0)
		link->caller.error = -ECONNRESET;
	if (posted < 0)
		fail(link, now_ns);
}

void load_rdma_send(struct ldma_load *load)
{
	for (uint32_t i = 0; i < load->link_count; i++)
		if (!load->links[i]->error)
			send_link(load->links[i]);
}

void load_rdma_wait(struct ldma_load *load, uint64_t timeout_ns)
{
	ldma_port_wait(load->config.port, load->config.cq, load->config.spin_ns, timeout_ns);
}
