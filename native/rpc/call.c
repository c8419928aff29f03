/* SPDX-License-Identifier: BSD-2-Clause */
/* A call from its arrival to its end: this file decodes its header, gives it to the program or the slow path, and frees
 * it. */
#include <errno.h>
#include <stdlib.h>

#include "rpc/endpoint_internal.h"

/* Segments beyond a few have memory of their own. */
static int decode(struct call *call, uint32_t length)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	const struct ldma_rpcrdma_limits *limits = &endpoint->config.limits;
	struct ldma_rpcrdma_segment *segments;
	int result = ldma_rpcrdma_decode(call->buffer.memory, length, limits, call->few,
					 FEW_SEGMENTS, &call->header);

	if (result != -ENOSPC)
		return result;
	call->header.segments = call->few;
	segments = malloc(call->header.segment_count * sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	return ldma_rpcrdma_decode(call->buffer.memory, length, limits, segments,
				   call->header.segment_count, &call->header);
}

static void drop(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;

	ldma_lock(&endpoint->lock);
	endpoint->stats.dropped_calls++;
	ldma_unlock(&endpoint->lock);
	call_finish(call, batch);
}

void ldma_call_drop(struct ldma_call *shown)
{
	drop(call_of(shown), NULL);
}

static void refuse(struct call *call, int error, uint32_t length, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint_stats *stats = &call->shown.endpoint->stats;
	struct ldma_lock *lock = &call->shown.endpoint->lock;
	bool is_answered = ldma_rpcrdma_is_answered(call->buffer.memory, length);

	ldma_lock(lock);
	if (!is_answered)
		stats->errors.unanswered++;
	else if (error == -EPROTONOSUPPORT)
		stats->errors.version++;
	else if (error == -ENOMEM)
		stats->errors.memory++;
	else
		stats->errors.header++;
	ldma_unlock(lock);
	if (is_answered)
		reply_error(call,
			    error == -EPROTONOSUPPORT ? LDMA_RPCRDMA_ERR_VERS
						      : LDMA_RPCRDMA_ERR_CHUNK,
			    batch);
	else
		drop(call, batch);
}

static uint32_t reply_room(const struct call *call)
{
	const struct ldma_endpoint *endpoint = call->shown.endpoint;
	const struct ldma_rpcrdma *header = &call->header;
	uint32_t most = endpoint->config.send_inline;
	uint32_t room = 0, taken = ldma_rpcrdma_reply_bytes(header, false);

	if (taken < most)
		room = most - taken;
	if (header->has_reply && header->reply.length > room &&
	    ldma_rpcrdma_reply_bytes(header, true) <= most)
		room = header->reply.length < UINT32_MAX ? (uint32_t)header->reply.length
							 : UINT32_MAX;
	return room;
}

static void show(struct call *call, uint32_t length, uint64_t now)
{
	const struct ldma_rpcrdma *header = &call->header;
	struct ldma_call *shown = &call->shown;

	*shown = (struct ldma_call){
		.endpoint = shown->endpoint,
		.connection = shown->endpoint->config.number,
		.piece_bytes = shown->endpoint->config.data_bytes,
		.message = call->buffer.memory + header->header_bytes,
		.length = length - header->header_bytes,
		.xid = header->xid,
		.received_ns = now,
		.has_write = header->write_count > 0,
		.reply_room = reply_room(call),
	};
	if (header->write_count)
		shown->write_room = header->writes[0].length;
	if (header->read_count) {
		shown->read_position = header->reads[0].position;
		shown->read_length = header->reads[0].length;
	}
}

/* Returns whether a program may see the call: all of the message is inline, but for data. */
static bool is_simple(const struct call *call)
{
	const struct ldma_rpcrdma *header = &call->header;

	return header->proc == LDMA_RPCRDMA_MSG && header->read_count <= 1 &&
	       (!header->read_count || call->shown.read_position <= call->shown.length);
}

static void serve(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	struct ldma_program *program =
		__atomic_load_n(&endpoint->service->program, __ATOMIC_ACQUIRE);
	uint32_t credits_asked = call->header.credits;
	bool is_taken = program && is_simple(call) && program->take(program, &call->shown, batch);

	/* A call that was taken may be over by now. */
	ldma_lock(&endpoint->lock);
	endpoint->stats.fast_calls += is_taken;
	endpoint->stats.slow_calls += !is_taken;
	endpoint->stats.asked = credits_asked;
	ldma_unlock(&endpoint->lock);
	if (!is_taken)
		slow_begin(call, batch);
}

void call_arrive(struct call *call, uint32_t length, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	const struct ldma_rpcrdma *header = &call->header;
	int error;

	call->is_replying = call->is_overfull = call->has_memory = false;
	call->reply_pieces = NULL;
	call->pieces = 0;
	call->data_bytes = 0;
	call->shown.received_ns = batch->now_ns;
	call->shown.read_bytes = call->shown.written_bytes = 0;
	error = decode(call, length);
	if (error) {
		refuse(call, error, length, batch);
		return;
	}
	if (header->proc == LDMA_RPCRDMA_ERROR || header->proc == LDMA_RPCRDMA_DONE) {
		ldma_lock(&endpoint->lock);
		endpoint->stats.errors.rdma_error += header->proc == LDMA_RPCRDMA_ERROR;
		ldma_unlock(&endpoint->lock);
		drop(call, batch);
		return;
	}
	/* A header without a message is a reply, and this side has sent no calls. */
	if (header->proc == LDMA_RPCRDMA_NOMSG && !header->read_count) {
		refuse(call, -EPROTO, length, batch);
		return;
	}
	show(call, length, batch->now_ns);
	call->invalidated = endpoint->config.may_invalidate ? ldma_rpcrdma_only_handle(header) : 0;
	serve(call, batch);
}

void call_finish(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	struct ldma_pool *pool = endpoint->config.receive_pool;
	uint64_t handle = call->buffer.handle;
	struct piece *piece;
	bool has_news;

	while ((piece = call->reply_pieces)) {
		call->reply_pieces = piece->next;
		piece_free(piece, batch);
	}
	if (call->header.segments != call->few)
		free(call->header.segments);
	call->header.segments = call->few;
	if (call->has_memory)
		slow_forget(call, batch);
	ldma_lock(&endpoint->lock);
	if (call->is_replying)
		endpoint->stats.replying--;
	else
		endpoint->stats.in_progress--;
	call->next = endpoint->free_calls;
	endpoint->free_calls = call;
	ldma_unlock(&endpoint->lock);
	ldma_pool_return_with(pool, handle, batch);
	/* Its place or its buffer may allow one more Receive. */
	ldma_lock(&endpoint->lock);
	credits_top_up(endpoint);
	has_news = endpoint->to_post_count > 0;
	ldma_unlock(&endpoint->lock);
	if (has_news)
		outbox_submit(endpoint, 0, batch);
	endpoint_check_over(endpoint);
	ldma_endpoint_put(endpoint);
}

void ldma_call_stored(struct ldma_call *shown, uint64_t storage_ns, uint64_t queued_ns)
{
	struct ldma_endpoint *endpoint = shown->endpoint;

	ldma_lock(&endpoint->lock);
	shown->storage_ns += storage_ns;
	ldma_times_add(&endpoint->stats.storage, storage_ns);
	ldma_times_add(&endpoint->stats.storage_queue, queued_ns);
	ldma_unlock(&endpoint->lock);
}
