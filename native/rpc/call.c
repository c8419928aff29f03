/* SPDX-License-Identifier: BSD-2-Clause */
/* A call from its arrival to its end: its header is decoded, the program or the slow path takes it, it is answered
 * (inline, by the reply chunk, or with an RDMA_ERROR), and freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
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

static void show(struct call *call, uint32_t length, uint64_t now_ns)
{
	const struct ldma_rpcrdma *header = &call->header;
	struct ldma_call *shown = &call->shown;
	uint32_t most = shown->endpoint->config.send_inline;

	call->reply_bytes = ldma_rpcrdma_reply_bytes(header, false);
	*shown = (struct ldma_call){
		.endpoint = shown->endpoint,
		.connection = shown->endpoint->config.number,
		.piece_bytes = shown->endpoint->config.data_bytes,
		.message = call->buffer.memory + header->header_bytes,
		.length = length - header->header_bytes,
		.xid = header->xid,
		.received_ns = now_ns,
		.has_write = header->write_count > 0,
		.reply_room = call->reply_bytes < most ? most - call->reply_bytes : 0,
	};
	if (header->has_reply && header->reply.length > shown->reply_room &&
	    ldma_rpcrdma_reply_bytes(header, true) <= most)
		shown->reply_room = header->reply.length < UINT32_MAX
					    ? (uint32_t)header->reply.length
					    : UINT32_MAX;
	if (header->write_count)
		shown->write_room = header->writes[0].length;
	if (header->read_count) {
		shown->read_position = header->reads[0].position;
		shown->read_length = header->reads[0].length;
	}
}

/* Gives a call to the program, if that may see it (all of the message is inline, but for data) and takes it, or to the
 * slow path. */
static void serve(struct call *call, uint32_t length, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	const struct ldma_rpcrdma *header = &call->header;
	struct ldma_program *program =
		__atomic_load_n(&endpoint->service->program, __ATOMIC_ACQUIRE);

	show(call, length, batch->now_ns);
	call->invalidated = endpoint->config.may_invalidate ? ldma_rpcrdma_only_handle(header) : 0;
	call->is_taken = true; /* it may be over before the program has returned */
	if (program && header->proc == LDMA_RPCRDMA_MSG && header->read_count <= 1 &&
	    (!header->read_count || call->shown.read_position <= call->shown.length) &&
	    program->take(program, &call->shown, batch))
		return;
	call->is_taken = false;
	slow_begin(call, batch);
}

void call_arrive(struct call *call, const struct ldma_wc *wc, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	struct ldma_endpoint_stats *stats = &endpoint->stats;
	const struct ldma_rpcrdma *header = &call->header;
	bool is_call = wc->status == LDMA_WC_SUCCESS;
	int error = is_call ? decode(call, wc->byte_length) : 0;

	ldma_lock(&endpoint->lock);
	stats->posted--;
	if (is_call && endpoint->is_draining) {
		stats->drained_calls++;
		is_call = false;
	}
	if (is_call) {
		stats->in_progress++;
		stats->calls++;
		stats->bytes_received += wc->byte_length;
		stats->errors.rdma_error += !error && header->proc == LDMA_RPCRDMA_ERROR;
		if (!error && header->proc <= LDMA_RPCRDMA_NOMSG)
			stats->asked = header->credits;
		endpoint_get(endpoint);
	}
	ldma_unlock(&endpoint->lock);
	if (!is_call) {
		receive_end(call, batch);
		return;
	}
	call->is_taken = call->is_replying = call->is_sending = call->is_sent = false;
	call->is_overfull = call->has_memory = false;
	call->reply_pieces = NULL;
	call->pieces = 0;
	call->data_bytes = 0;
	call->shown.received_ns = batch->now_ns;
	call->shown.read_bytes = call->shown.written_bytes = 0;
	/* A header without a message is a reply, and this side has sent no calls. */
	if (!error && header->proc == LDMA_RPCRDMA_NOMSG && !header->read_count)
		error = -EPROTO;
	if (error)
		refuse(call, error, wc->byte_length, batch);
	else if (header->proc == LDMA_RPCRDMA_ERROR || header->proc == LDMA_RPCRDMA_DONE)
		drop(call, batch);
	else
		serve(call, wc->byte_length, batch);
}

void call_finish(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	struct piece *pieces = call->reply_pieces, *last = NULL;
	bool has_news, is_broken;

	/* Buffers go back first: they may allow one more Receive. */
	for (struct piece *piece = pieces; piece; piece = piece->next) {
		ldma_pool_return_with(endpoint->config.data_pool, piece->buffer.handle, batch);
		last = piece;
	}
	if (call->header.segments != call->few)
		free(call->header.segments);
	call->header.segments = call->few;
	if (call->has_memory)
		slow_forget(call, batch);
	ldma_pool_return_with(endpoint->config.receive_pool, call->buffer.handle, batch);
	ldma_lock(&endpoint->lock);
	if (call->is_sending) /* they complete in the order in which they were posted */
		list_take(&endpoint->sending);
	if (call->is_sent) {
		endpoint->stats.replies++;
		endpoint->stats.bytes_sent += call->send_bytes;
	}
	if (call->is_replying)
		endpoint->stats.replying--;
	else
		endpoint->stats.in_progress--;
	if (pieces) {
		last->next = endpoint->free_pieces;
		endpoint->free_pieces = pieces;
	}
	call->next = endpoint->free_calls;
	endpoint->free_calls = call;
	credits_top_up(endpoint);
	/* The send queue may have room again, too. */
	has_news = endpoint->to_post_count || endpoint->first_posting;
	is_broken = endpoint->is_broken;
	ldma_unlock(&endpoint->lock);
	if (has_news)
		outbox_submit(endpoint, 0, batch);
	if (is_broken)
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

/* Posts the Receive of the next call before the reply, so that it is there when the peer learns of the grant. */
static void send_reply(struct call *call, uint32_t bytes, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	bool is_broken;

	ldma_lock(&endpoint->lock);
	endpoint->stats.fast_calls += call->is_taken;
	is_broken = endpoint->is_broken;
	if (!is_broken) {
		endpoint->stats.in_progress--;
		endpoint->stats.replying++;
		call->is_replying = true;
		call->send_bytes = bytes;
		endpoint->stats.granted = credits_top_up(endpoint);
		put32(call->buffer.memory + 8, endpoint->stats.granted);
		outbox_append(endpoint, &call->posting, true);
	}
	ldma_unlock(&endpoint->lock);
	if (is_broken)
		call_finish(call, batch);
	else
		outbox_submit(endpoint, 0, batch);
}

void reply_error(struct call *call, enum ldma_rpcrdma_error error, struct ldma_rpc_batch *batch)
{
	uint8_t *memory = call->buffer.memory;

	call->invalidated = 0;
	send_reply(call, ldma_rpcrdma_encode_error(memory, 0, error, memory), batch);
}

static void reply_nowhere(struct call *call, int error, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;

	ldma_lock(&endpoint->lock);
	if (error == -ENOMEM)
		endpoint->stats.errors.memory++;
	else
		endpoint->stats.errors.no_room++;
	ldma_unlock(&endpoint->lock);
	reply_error(call, LDMA_RPCRDMA_ERR_CHUNK, batch);
}

/* Ends a call whose message is in the reply chunk now. */
static void reply_is_written(struct call *call, int error, struct ldma_rpc_batch *batch)
{
	const struct ldma_rpcrdma *header = &call->header;

	if (error) {
		reply_nowhere(call, error, batch);
		return;
	}
	ldma_rpcrdma_encode_reply(header, 0, call->data_bytes, true, call->answer_bytes,
				  call->buffer.memory);
	ldma_lock(&call->shown.endpoint->lock);
	call->shown.endpoint->stats.long_replies++;
	ldma_unlock(&call->shown.endpoint->lock);
	send_reply(call, ldma_rpcrdma_reply_bytes(header, true), batch);
}

static void reply_inline(struct call *call, const void *message, uint32_t length,
			 struct ldma_rpc_batch *batch)
{
	uint32_t bytes = call->reply_bytes;

	memmove(call->buffer.memory + bytes, message, length); /* it may be there already */
	ldma_rpcrdma_encode_reply(&call->header, 0, call->data_bytes, false, 0,
				  call->buffer.memory);
	send_reply(call, bytes + length, batch);
}

static bool fits_inline(const struct call *call, uint64_t length)
{
	uint32_t most = call->shown.endpoint->config.send_inline;

	return call->reply_bytes <= most && length <= most - call->reply_bytes;
}

static bool fits_reply_chunk(const struct call *call, uint64_t length)
{
	const struct ldma_rpcrdma *header = &call->header;

	return header->has_reply && length <= header->reply.length &&
	       ldma_rpcrdma_reply_bytes(header, true) <= call->shown.endpoint->config.send_inline;
}

void reply_answer(struct call *call, struct ldma_rpc_batch *batch)
{
	if (call->is_overfull)
		reply_nowhere(call, -ENOSPC, batch);
	else if (fits_inline(call, call->answer_bytes))
		reply_inline(call, call->answer, (uint32_t)call->answer_bytes, batch);
	else if (fits_reply_chunk(call, call->answer_bytes))
		transfer_start(call, &call->header.reply, 0, call->answer, call->answer_bytes,
			       false, reply_is_written, batch);
	else
		reply_nowhere(call, -ENOSPC, batch);
}

void ldma_call_reply(struct ldma_call *shown, const void *message, uint32_t length,
		     uint64_t data_length, struct ldma_rpc_batch *batch)
{
	struct call *call = call_of(shown);

	call->data_bytes = data_length;
	if (data_length > shown->write_room)
		call->is_overfull = true;
	if (!call->is_overfull && fits_inline(call, length)) {
		reply_inline(call, message, length, batch);
		return;
	}
	call->has_memory = true;
	call->answer = malloc(length ? length : 1);
	if (!call->answer) {
		reply_nowhere(call, -ENOMEM, batch);
		return;
	}
	memcpy(call->answer, message, length);
	call->answer_bytes = length;
	reply_answer(call, batch);
}
