/* SPDX-License-Identifier: BSD-2-Clause */
/* The load over TCP: calls go out together, replies are parsed where they were received. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/wake.h"
#include "load/load_internal.h"
#include "wire/rpc.h"

#define XID_BITS 12
_Static_assert(LDMA_STREAM_CALLS == 1 << XID_BITS, "numbers in XIDs");
#define RECORD_MOST(size) ((size) + 4096)
#define SEND_RECORDS 4 /* WRITEs for which the stream has room while they wait, at least */
#define SEND_LEAST (UINT32_C(1) << 18)

int load_tcp_open(struct load_link *link, int fd)
{
	uint32_t size = link->load->config.size;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
	size_t send_bytes = SEND_RECORDS * (size_t)RECORD_MOST(size);
	int error;

	link->users = calloc(LDMA_STREAM_CALLS, sizeof(*link->users));
	link->xids = calloc(LDMA_STREAM_CALLS, sizeof(*link->xids));
	link->free = calloc(LDMA_STREAM_CALLS, sizeof(*link->free));
	if (!link->users || !link->xids || !link->free)
		return -ENOMEM;
	for (uint32_t i = 0; i < LDMA_STREAM_CALLS; i++)
		link->free[link->free_count++] = LDMA_STREAM_CALLS - 1 - i;
	error = ldma_stream_init(&link->stream, fd,
				 send_bytes < SEND_LEAST ? SEND_LEAST : send_bytes,
				 RECORD_MOST(size));
	if (error)
		return error;
	return epoll_ctl(link->load->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void load_tcp_close(struct load_link *link)
{
	for (uint32_t i = 0; link->users && i < LDMA_STREAM_CALLS; i++) {
		struct load_call *call =
			(struct load_call *)(uintptr_t)(link->users[i] & ~UINT64_C(1));

		if (link->users[i] & 1) {
			free(call->message);
			free(call);
		}
	}
	free(link->users);
	free(link->xids);
	free(link->free);
	ldma_stream_destroy(&link->stream);
}

/* Returns the user of an open call, and closes the call. */
static uint64_t take_user(struct load_link *link, uint32_t number)
{
	uint64_t user = link->users[number];

	link->users[number] = 0;
	link->free[link->free_count++] = number;
	return user;
}

void load_tcp_leave(struct load_link *link)
{
	epoll_ctl(link->load->epoll_fd, EPOLL_CTL_DEL, link->stream.fd, NULL);
}

static void fail(struct load_link *link, int error, uint64_t now_ns)
{
	if (link->error)
		return;
	link->error = error;
	load_tcp_leave(link);
	load_link_abandon(link, now_ns);
	for (uint32_t i = 0; i < LDMA_STREAM_CALLS; i++)
		if (link->users[i])
			load_link_ended(link, take_user(link, i), error, NULL, 0, NULL, 0, now_ns);
	load_link_fail(link, error, now_ns);
}

static int deliver(struct load_link *link, const uint8_t *record, uint32_t length, uint64_t now_ns)
{
	uint32_t xid, number;

	if (length < 8)
		return -EPROTO;
	xid = get32(record);
	number = xid % LDMA_STREAM_CALLS;
	if (get32(record + 4) == LDMA_RPC_REPLY && link->users[number] && link->xids[number] == xid)
		load_link_ended(link, take_user(link, number), 0, record, length, NULL, 0, now_ns);
	return 0;
}

static void receive(struct load_link *link)
{
	uint64_t now_ns;
	const uint8_t *record;
	uint32_t length;
	ptrdiff_t got = ldma_stream_receive(&link->stream);
	int found = 0;

	now_ns = load_now();
	if (got < 0)
		found = (int)got;
	while (found >= 0 && (found = ldma_stream_next(&link->stream, &record, &length)) > 0)
		found = deliver(link, record, length, now_ns) ? -EPROTO : 1;
	if (found < 0)
		fail(link, found, now_ns);
}

void load_tcp_receive(struct ldma_load *load, const struct load_tcp_events *events)
{
	for (uint32_t i = 0; i < events->count; i++) {
		if (!events->links[i])
			ldma_unsignal(load->wake_fd);
		else if (!events->links[i]->error)
			receive(events->links[i]);
	}
}

/* Returns room for a call of that length in the stream, with its XID already in it. */
static uint8_t *open_call(struct load_link *link, uint64_t user, uint32_t length)
{
	uint8_t *at = link->free_count ? ldma_stream_reserve(&link->stream, length) : NULL;
	uint32_t number;

	if (!at)
		return NULL;
	number = link->free[--link->free_count];
	link->users[number] = user;
	link->xids[number] = link->xid_step++ << XID_BITS | number;
	link->open++;
	put32(at, link->xids[number]);
	return at;
}

static bool send_slot(struct load_link *link, struct load_slot *slot, uint64_t now_ns)
{
	struct ldma_io_template *call =
		slot->is_write ? &slot->session->write : &slot->session->read;
	uint32_t data, padded;
	struct ldma_io io;
	uint8_t *at;

	load_slot_io(slot, &io);
	data = slot->is_write ? io.count : 0;
	padded = (data + 3) & ~UINT32_C(3);
	at = open_call(link, load_user_of_slot(slot), call->length + padded);
	if (!at)
		return false;
	ldma_io_patch(call, &io);
	memcpy(at + 4, call->message + 4, call->length - 4);
	if (data) {
		load_slot_fill(slot, at + call->length);
		memset(at + call->length + data, 0, padded - data);
	}
	load_slot_sent(slot, now_ns);
	return true;
}

/* Sends what waits. Returns 0 or a negative error. */
static int send_all(struct load_link *link, uint64_t now_ns)
{
	int error = 0;

	while (!error && link->calls) {
		struct load_call *call = link->calls;
		uint8_t *at = open_call(link, load_user_of_call(call), call->length);

		if (!at)
			return ldma_stream_flush(&link->stream);
		load_link_take_call(link);
		memcpy(at + 4, call->message + 4, call->length - 4);
	}
	while (!error && link->queue.first) {
		struct load_slot *next = link->queue.first->next;

		if (send_slot(link, link->queue.first, now_ns)) {
			link->queue.first = next;
			continue;
		}
		/* The stream is full, and stays so unless the socket takes something. */
		error = ldma_stream_flush(&link->stream);
		if (!ldma_stream_is_flushed(&link->stream) || !link->free_count)
			return error;
	}
	return error ? error : ldma_stream_flush(&link->stream);
}

static void send_link(struct load_link *link)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
	uint64_t now_ns = load_now();
	bool is_blocked;
	int error;

	load_link_stamp(link, now_ns);
	error = send_all(link, now_ns);
	if (error) {
		fail(link, error, now_ns);
		return;
	}
	is_blocked = !ldma_stream_is_flushed(&link->stream);
	if (is_blocked == link->is_write_awaited)
		return;
	link->is_write_awaited = is_blocked;
	if (is_blocked)
		event.events |= EPOLLOUT;
	epoll_ctl(link->load->epoll_fd, EPOLL_CTL_MOD, link->stream.fd, &event);
}

void load_tcp_send(struct ldma_load *load)
{
	for (uint32_t i = 0; i < load->link_count; i++) {
		struct load_link *link = load->links[i];

		if (!link->error &&
		    (link->calls || link->queue.first || !ldma_stream_is_flushed(&link->stream)))
			send_link(link);
	}
}

void load_tcp_wait(struct ldma_load *load, uint64_t timeout_ns, struct load_tcp_events *ret)
{
	struct epoll_event events[LDMA_LOAD_BATCH];
	struct timespec timeout = ldma_timespec(timeout_ns);
	int count = epoll_pwait2(load->epoll_fd, events, LDMA_LOAD_BATCH, &timeout, NULL);

	ret->count = count > 0 ? (uint32_t)count : 0;
	for (uint32_t i = 0; i < ret->count; i++)
		ret->links[i] = events[i].data.ptr;
}
