/* A call from its arrival to its end. */
#include <errno.h>
#include <stdlib.h>

#include "endpoint_internal.h"

/* Segments beyond a few have memory of their own. */
static int decode(struct request *request, uint32_t length)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	const struct ldma_rpcrdma_limits *limits = &endpoint->config.limits;
	struct ldma_rpcrdma_segment *segments;
	int result = ldma_rpcrdma_decode(request->buffer.memory, length, limits, request->few,
					 FEW_SEGMENTS, &request->header);

	if (result != -ENOSPC)
		return result;
	request->header.segments = request->few;
	segments = malloc(request->header.segment_count * sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	return ldma_rpcrdma_decode(request->buffer.memory, length, limits, segments,
				   request->header.segment_count, &request->header);
}

static void refuse(struct request *request, int error, uint32_t length)
{
	struct ldma_endpoint_stats *stats = &request->call.endpoint->stats;
	struct ldma_lock *lock = &request->call.endpoint->lock;
	bool is_answered = ldma_rpcrdma_is_answered(request->buffer.memory, length);

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
		reply_error(request, error == -EPROTONOSUPPORT ? LDMA_RPCRDMA_ERR_VERS
							       : LDMA_RPCRDMA_ERR_CHUNK);
	else
		ldma_call_drop(&request->call);
}

static uint32_t reply_room(const struct request *request)
{
	const struct ldma_endpoint *endpoint = request->call.endpoint;
	const struct ldma_rpcrdma *header = &request->header;
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

static void show(struct request *request, uint32_t length, uint64_t now)
{
	const struct ldma_rpcrdma *header = &request->header;
	struct ldma_call *call = &request->call;

	*call = (struct ldma_call){
		.endpoint = call->endpoint,
		.message = request->buffer.memory + header->header_bytes,
		.length = length - header->header_bytes,
		.xid = header->xid,
		.received_ns = now,
		.has_write = header->write_count > 0,
		.reply_room = reply_room(request),
	};
	if (header->write_count)
		call->write_room = header->writes[0].length;
	if (header->read_count) {
		call->read_position = header->reads[0].position;
		call->read_length = header->reads[0].length;
	}
}

/* Whether a program may see it: all of the message is inline, but for data. */
static bool is_simple(const struct request *request)
{
	const struct ldma_rpcrdma *header = &request->header;

	return header->proc == LDMA_RPCRDMA_MSG && header->read_count <= 1 &&
	       (!header->read_count || request->call.read_position <= request->call.length);
}

static void serve(struct request *request)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	struct ldma_program *program =
		__atomic_load_n(&endpoint->service->program, __ATOMIC_ACQUIRE);
	uint32_t credits_asked = request->header.credits;
	bool is_taken = program && is_simple(request) && program->take(program, &request->call);

	/* If it was taken, it may be over by now. */
	ldma_lock(&endpoint->lock);
	endpoint->stats.fast_calls += is_taken;
	endpoint->stats.slow_calls += !is_taken;
	endpoint->stats.asked = credits_asked;
	ldma_unlock(&endpoint->lock);
	if (!is_taken)
		slow_begin(request);
}

void request_arrive(struct request *request, uint32_t length, uint64_t now)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	const struct ldma_rpcrdma *header = &request->header;
	int error;

	request->is_replying = request->is_overfull = false;
	request->departed = NULL;
	request->pieces = 0;
	request->data_bytes = 0;
	request->call.received_ns = now;
	request->call.read_bytes = request->call.written_bytes = 0;
	error = decode(request, length);
	if (error) {
		refuse(request, error, length);
		return;
	}
	if (header->proc == LDMA_RPCRDMA_ERROR || header->proc == LDMA_RPCRDMA_DONE) {
		ldma_lock(&endpoint->lock);
		endpoint->stats.errors.rdma_error += header->proc == LDMA_RPCRDMA_ERROR;
		ldma_unlock(&endpoint->lock);
		ldma_call_drop(&request->call);
		return;
	}
	/* What has no message but a reply chunk is a reply, and nobody asked this peer anything. */
	if (header->proc == LDMA_RPCRDMA_NOMSG && !header->read_count) {
		refuse(request, -EPROTO, length);
		return;
	}
	show(request, length, now);
	request->invalidated =
		endpoint->config.may_invalidate ? ldma_rpcrdma_only_handle(header) : 0;
	serve(request);
}

void request_finish(struct request *request)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	struct ldma_pool *pool = endpoint->config.receive_pool;
	uint64_t handle = request->buffer.handle;
	struct piece *piece;
	bool has_news;

	while ((piece = request->departed)) {
		request->departed = piece->next;
		piece_free(piece);
	}
	if (request->header.segments != request->few)
		free(request->header.segments);
	request->header.segments = request->few;
	slow_forget(request);
	ldma_lock(&endpoint->lock);
	if (request->is_replying)
		endpoint->stats.replying--;
	else
		endpoint->stats.in_progress--;
	request->next = endpoint->free_requests;
	endpoint->free_requests = request;
	ldma_unlock(&endpoint->lock);
	ldma_pool_return(pool, handle);
	/* With its place or its buffer there may be one more Receive. */
	ldma_lock(&endpoint->lock);
	credits_top_up(endpoint);
	has_news = endpoint->to_post_count > 0;
	ldma_unlock(&endpoint->lock);
	if (has_news)
		outbox_submit(endpoint, 0);
	endpoint_check_over(endpoint);
	ldma_endpoint_put(endpoint);
}

void ldma_call_stored(struct ldma_call *call, uint64_t storage_ns, uint64_t queued_ns)
{
	struct ldma_endpoint *endpoint = call->endpoint;

	ldma_lock(&endpoint->lock);
	call->storage_ns += storage_ns;
	ldma_times_add(&endpoint->stats.storage, storage_ns);
	ldma_times_add(&endpoint->stats.storage_queue, queued_ns);
	ldma_unlock(&endpoint->lock);
}

void ldma_call_drop(struct ldma_call *call)
{
	struct ldma_endpoint *endpoint = call->endpoint;

	ldma_lock(&endpoint->lock);
	endpoint->stats.dropped_calls++;
	ldma_unlock(&endpoint->lock);
	request_finish(request_of(call));
}
