/* SPDX-License-Identifier: BSD-2-Clause */
/* What an endpoint posts, in this order: Receives, so that no reply lets the peer send a call that finds none; data;
 * replies. There are as many Receives as the peer is granted credits, less the calls in progress, since each of these
 * leaves its place to a new Receive; and some to spare. */
#include <errno.h>
#include <stdlib.h>

#include "rpc/endpoint_internal.h"

#define BLOCK_CALLS 16

static void add_calls(struct ldma_endpoint *endpoint)
{
	uint32_t most = 2 * endpoint->config.credits_max + LDMA_ENDPOINT_SPARE_RECEIVES;
	uint32_t room = most - endpoint->call_count;
	uint32_t count = room < BLOCK_CALLS ? room : BLOCK_CALLS;
	struct block *block;
	struct call *calls;

	if (!count)
		return;
	block = calloc(1, sizeof(*block) + count * sizeof(struct call));
	if (!block)
		return;
	block->next = endpoint->blocks;
	endpoint->blocks = block;
	endpoint->call_count += count;
	calls = (struct call *)(block + 1);
	for (uint32_t i = 0; i < count; i++) {
		calls[i].shown.endpoint = endpoint;
		calls[i].next = endpoint->free_calls;
		endpoint->free_calls = &calls[i];
	}
}

static struct call *call_take(struct ldma_endpoint *endpoint)
{
	struct call *call;

	if (!endpoint->free_calls)
		add_calls(endpoint);
	call = endpoint->free_calls;
	if (call)
		endpoint->free_calls = call->next;
	return call;
}

static uint32_t in_use(const struct ldma_endpoint *endpoint)
{
	return endpoint->stats.posted + endpoint->to_post_count + endpoint->stats.in_progress;
}

/* Takes a buffer. Returns 0, or the pool's error; with -EINPROGRESS the endpoint waits for a buffer. It does not wait,
 * nor count itself late, for the Receives beyond the credits: these have buffers that no reply needs just now. */
static int take_buffer(struct ldma_endpoint *endpoint, struct ldma_pool_buffer *ret)
{
	int result;

	if (in_use(endpoint) >= endpoint->target)
		return ldma_pool_take(endpoint->config.receive_pool, LDMA_POOL_DATA, ret);
	if (endpoint->is_awaiting_receive)
		return -EAGAIN;
	endpoint->receive_waiter.complete = credits_receive_buffer;
	result = ldma_pool_wait(endpoint->config.receive_pool, LDMA_POOL_DATA,
				&endpoint->receive_waiter);
	if (!result)
		*ret = endpoint->receive_waiter.buffer;
	if (result == -EINPROGRESS) {
		endpoint->stats.receives_late++;
		endpoint->is_awaiting_receive = true;
		endpoint_get(endpoint);
	}
	return result;
}

uint32_t credits_top_up(struct ldma_endpoint *endpoint)
{
	uint32_t most = endpoint->target + LDMA_ENDPOINT_SPARE_RECEIVES;
	uint32_t backed = in_use(endpoint), granted;
	struct call *call;

	while (!endpoint->is_broken && backed < most && (call = call_take(endpoint))) {
		if (take_buffer(endpoint, &call->buffer)) {
			call->next = endpoint->free_calls;
			endpoint->free_calls = call;
			break;
		}
		list_append(&endpoint->to_post, call);
		endpoint->to_post_count++;
		backed++;
	}
	granted = backed < endpoint->target ? backed : endpoint->target;
	/* 0 would forbid the peer to ask again (RFC 8166, 3.3.1): if no Receive is left, the reply's own buffer becomes
	 * the next one. */
	return granted ? granted : 1;
}

void credits_receive_buffer(struct ldma_pool_waiter *waiter, void *batch)
{
	struct ldma_endpoint *endpoint = CONTAINER(waiter, struct ldma_endpoint, receive_waiter);
	struct ldma_pool_buffer buffer = waiter->buffer;
	bool is_used = false, is_mine = !waiter->result;

	ldma_lock(&endpoint->lock);
	endpoint->is_awaiting_receive = false;
	if (is_mine && !endpoint->is_broken && in_use(endpoint) < endpoint->target) {
		struct call *call = call_take(endpoint);

		if (call) {
			call->buffer = buffer;
			list_append(&endpoint->to_post, call);
			endpoint->to_post_count++;
			is_used = true;
			credits_top_up(endpoint);
		}
	}
	ldma_unlock(&endpoint->lock);
	if (is_used)
		outbox_submit(endpoint, 0, batch);
	else if (is_mine)
		ldma_pool_return_with(endpoint->config.receive_pool, buffer.handle, batch);
	endpoint_check_over(endpoint);
	ldma_endpoint_put(endpoint);
}

void receive_end(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	uint64_t handle = call->buffer.handle;

	if (call->header.segments != call->few)
		free(call->header.segments);
	call->header.segments = call->few;
	ldma_lock(&endpoint->lock);
	call->next = endpoint->free_calls;
	endpoint->free_calls = call;
	ldma_unlock(&endpoint->lock);
	ldma_pool_return_with(endpoint->config.receive_pool, handle, batch);
}

/* Data of several calls goes before their replies: packets of one size share trains. What was not posted at the first
 * try keeps its place. */
void outbox_append(struct ldma_endpoint *endpoint, struct posting *posting, bool is_reply)
{
	struct posting *before = is_reply ? endpoint->last_posting : endpoint->last_transfer;
	struct posting **at = before ? &before->next : &endpoint->first_posting;

	posting->stalled_ns = 0;
	posting->is_reply = is_reply;
	posting->next = *at;
	*at = posting;
	if (!posting->next)
		endpoint->last_posting = posting;
	if (!is_reply)
		endpoint->last_transfer = posting;
}

static int post_receives(struct ldma_endpoint *endpoint)
{
	struct call *call;

	while ((call = endpoint->to_post.first)) {
		struct ldma_sge sge = {
			.va = call->buffer.va,
			.length = endpoint->config.receive_bytes,
			.lkey = call->buffer.lkey,
		};
		struct ldma_recv_wr wr = {
			.wr_id = (uintptr_t)call | TAG_RECEIVE, .sge = &sge, .sge_count = 1};
		int error = ldma_qp_post_recv(endpoint->config.qp, &wr);

		if (error)
			return error;
		list_take(&endpoint->to_post);
		endpoint->to_post_count--;
		endpoint->stats.posted++;
	}
	return 0;
}

/* Pieces one behind the other in one segment of the peer, for one request of the queue pair. */
struct joined {
	struct ldma_sge sge[LDMA_MAX_SGE];
	uint32_t count, length;
	struct piece *whole, **whole_end; /* those that end with it */
	struct piece *partly;             /* the last one, if it goes on in the next segment */
	struct posting *rest;             /* the items to be posted afterwards */
};

static void join(const struct ldma_endpoint *endpoint, struct piece *piece, uint32_t room,
		 struct joined *ret)
{
	uint32_t most = endpoint->config.qp->req.max_sge;

	*ret = (struct joined){.whole_end = &ret->whole};
	while (ret->count < most && ret->count < LDMA_MAX_SGE) {
		uint32_t left = piece->length - piece->posted;
		uint32_t length = left < room ? left : room;
		struct piece *next;

		ret->sge[ret->count++] = (struct ldma_sge){.va = piece->buffer.va + piece->posted,
							   .length = length,
							   .lkey = piece->buffer.lkey};
		ret->length += length;
		room -= length;
		ret->rest = &piece->posting;
		if (length < left) {
			ret->partly = piece;
			return;
		}
		piece->next = NULL;
		*ret->whole_end = piece;
		ret->whole_end = &piece->next;
		ret->rest = piece->posting.next;
		if (!room || !ret->rest || ret->rest->is_reply)
			return;
		next = CONTAINER(ret->rest, struct piece, posting);
		if (next->call != piece->call || next->chunk != piece->chunk ||
		    next->offset != piece->offset + piece->length)
			return;
		piece = next;
	}
}

/* Posts the piece, as far as one segment takes it, and those that follow it there. Pieces of a reply complete with it,
 * and their call frees them then; others have a completion, which says that their data came or their buffers are free.
 * Requests that wait for room in the send queue are posted after a completion, so each quarter of the queue has to
 * bring one. */
static int post_pieces(struct ldma_endpoint *endpoint, struct piece *piece)
{
	struct call *call = piece->call;
	const struct ldma_rpcrdma_segment *segment =
		&call->header.segments[piece->chunk->first + piece->segment];
	bool is_departing = !piece->is_pull && call->is_replying;
	bool tells, is_due = endpoint->unsignaled >= endpoint->config.qp->req.mask / 4;
	struct ldma_send_wr wr;
	struct joined joined;
	int error;

	join(endpoint, piece, segment->length - piece->segment_used, &joined);
	tells = joined.whole && !is_departing;
	wr = (struct ldma_send_wr){
		.wr_id = tells ? (uintptr_t)joined.whole | TAG_PIECE
			       : (uintptr_t)endpoint | TAG_NOTHING,
		.sge = joined.sge,
		.sge_count = joined.count,
		.opcode = piece->is_pull ? LDMA_WR_RDMA_READ : LDMA_WR_RDMA_WRITE,
		.flags = tells || is_due ? LDMA_SEND_SIGNALED : 0,
		.remote_va = segment->offset + piece->segment_used,
		.rkey = segment->handle,
	};
	error = joined.length ? ldma_qp_post_send(endpoint->config.qp, &wr) : 0;
	if (error)
		return error;
	if (joined.length)
		endpoint->unsignaled = tells || is_due ? 0 : endpoint->unsignaled + 1;
	if (joined.partly) {
		joined.partly->posted += joined.sge[joined.count - 1].length;
		joined.partly->segment++;
		joined.partly->segment_used = 0;
	}
	if (is_departing && joined.whole) {
		*joined.whole_end = call->reply_pieces;
		call->reply_pieces = joined.whole;
	}
	endpoint->first_posting = joined.rest;
	return 0;
}

static int post_reply(struct ldma_endpoint *endpoint, struct call *call, uint64_t now)
{
	struct ldma_endpoint_stats *stats = &endpoint->stats;
	const struct ldma_call *shown = &call->shown;
	struct posting *rest = call->posting.next;
	struct ldma_sge sge = {
		.va = call->buffer.va,
		.length = call->send_bytes,
		.lkey = call->buffer.lkey,
	};
	struct ldma_send_wr wr = {
		.wr_id = (uintptr_t)call | TAG_SEND,
		.sge = &sge,
		.sge_count = 1,
		.opcode = call->invalidated ? LDMA_WR_SEND_WITH_INV : LDMA_WR_SEND,
		.flags = LDMA_SEND_SIGNALED,
		.imm = call->invalidated,
	};
	int error = ldma_qp_post_send(endpoint->config.qp, &wr);

	if (error)
		return error;
	endpoint->unsignaled = 0;
	endpoint->first_posting = rest;
	call->is_sending = true;
	call->sent_ns = endpoint->replied_ns = now;
	list_append(&endpoint->sending, call);
	ldma_times_add(&stats->latency, now > shown->received_ns ? now - shown->received_ns : 0);
	stats->read_bytes += shown->read_bytes;
	stats->written_bytes += shown->written_bytes;
	stats->invalidations += call->invalidated != 0;
	return 0;
}

/* Posts all items, or as many as there is room for. */
static int post_items(struct ldma_endpoint *endpoint, uint64_t now)
{
	struct posting *posting;

	while ((posting = endpoint->first_posting)) {
		uint64_t stalled_ns = posting->stalled_ns;
		/* Once it is posted, its completion may free it at any time. */
		int error =
			posting->is_reply
				? post_reply(endpoint, CONTAINER(posting, struct call, posting),
					     now)
				: post_pieces(endpoint, CONTAINER(posting, struct piece, posting));

		if (error) {
			if (!stalled_ns)
				posting->stalled_ns = now;
			return error;
		}
		if (stalled_ns && endpoint->first_posting != posting)
			ldma_times_add(&endpoint->stats.send_waits, now - stalled_ns);
	}
	endpoint->last_posting = NULL;
	return 0;
}

bool outbox_post(struct ldma_endpoint *endpoint, uint64_t now)
{
	int error = 0;

	ldma_lock(&endpoint->lock);
	if (!endpoint->is_broken) {
		error = post_receives(endpoint);
		/* Before the peer has confirmed the connection, calls may come, but nothing may be sent. */
		if (!error && endpoint->config.qp->state >= LDMA_QP_RTS)
			error = post_items(endpoint, now);
		endpoint->last_transfer = endpoint->last_posting;
	}
	ldma_unlock(&endpoint->lock);
	return !error || error == -ENOMEM; /* ENOMEM: no room in a ring; it is posted later */
}

void outbox_submit(struct ldma_endpoint *endpoint, uint32_t data_bytes,
		   struct ldma_rpc_batch *batch)
{
	struct ldma_service *service = endpoint->service;
	bool is_sound;

	/* Another service's thread may have brought a buffer of a pool that both use. */
	if (batch && batch->service == service) {
		batch_add(batch, endpoint, data_bytes);
		return;
	}
	ldma_port_lock(service->config.port);
	is_sound = outbox_post(endpoint, ldma_now_ns());
	ldma_port_unlock(service->config.port);
	__atomic_add_fetch(&service->stats.locks, 1, __ATOMIC_RELAXED);
	if (!is_sound)
		endpoint_break(endpoint, NULL);
}
