/* Replies: inline, by the reply chunk, or an RDMA_ERROR. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "endpoint_internal.h"

/* The Receive of the next call comes first; then what is granted is true when the peer hears of it. */
static void send_reply(struct request *request, uint32_t bytes)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	bool is_broken;

	ldma_lock(&endpoint->lock);
	is_broken = endpoint->is_broken;
	if (!is_broken) {
		endpoint->stats.in_progress--;
		endpoint->stats.replying++;
		request->is_replying = true;
		request->send_bytes = bytes;
		credits_top_up(endpoint);
		endpoint->stats.granted = credits_granted(endpoint);
		put32(request->buffer.memory + 8, endpoint->stats.granted);
		outbox_append(endpoint, &request->op, OP_SEND);
	}
	ldma_unlock(&endpoint->lock);
	if (is_broken)
		request_finish(request);
	else
		outbox_submit(endpoint, 0);
}

void reply_error(struct request *request, enum ldma_rpcrdma_error error)
{
	uint8_t *memory = request->buffer.memory;

	request->invalidated = 0;
	send_reply(request, ldma_rpcrdma_encode_error(memory, 0, error, memory));
}

static void reply_nowhere(struct request *request, int error)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;

	ldma_lock(&endpoint->lock);
	if (error == -ENOMEM)
		endpoint->stats.errors.memory++;
	else
		endpoint->stats.errors.no_room++;
	ldma_unlock(&endpoint->lock);
	reply_error(request, LDMA_RPCRDMA_ERR_CHUNK);
}

/* The reply chunk has the message. */
static void reply_is_written(struct request *request, int error)
{
	const struct ldma_rpcrdma *header = &request->header;

	if (error) {
		reply_nowhere(request, error);
		return;
	}
	ldma_rpcrdma_encode_reply(header, 0, request->data_bytes, true, request->answer_bytes,
				  request->buffer.memory);
	ldma_lock(&request->call.endpoint->lock);
	request->call.endpoint->stats.long_replies++;
	ldma_unlock(&request->call.endpoint->lock);
	send_reply(request, ldma_rpcrdma_reply_bytes(header, true));
}

static void reply_inline(struct request *request, const void *message, uint32_t length)
{
	uint32_t bytes = ldma_rpcrdma_reply_bytes(&request->header, false);

	memmove(request->buffer.memory + bytes, message, length); /* it may be there already */
	ldma_rpcrdma_encode_reply(&request->header, 0, request->data_bytes, false, 0,
				  request->buffer.memory);
	send_reply(request, bytes + length);
}

static bool fits_inline(const struct request *request, uint64_t length)
{
	uint32_t taken = ldma_rpcrdma_reply_bytes(&request->header, false);
	uint32_t most = request->call.endpoint->config.send_inline;

	return taken <= most && length <= most - taken;
}

static bool fits_reply_chunk(const struct request *request, uint64_t length)
{
	const struct ldma_rpcrdma *header = &request->header;

	return header->has_reply && length <= header->reply.length &&
	       ldma_rpcrdma_reply_bytes(header, true) <= request->call.endpoint->config.send_inline;
}

void reply_answer(struct request *request)
{
	if (request->is_overfull)
		reply_nowhere(request, -ENOSPC);
	else if (fits_inline(request, request->answer_bytes))
		reply_inline(request, request->answer, (uint32_t)request->answer_bytes);
	else if (fits_reply_chunk(request, request->answer_bytes))
		transfer_start(request, &request->header.reply, 0, request->answer,
			       request->answer_bytes, false, reply_is_written);
	else
		reply_nowhere(request, -ENOSPC);
}

void ldma_call_reply(struct ldma_call *call, const void *message, uint32_t length,
		     uint64_t data_length)
{
	struct request *request = request_of(call);

	request->data_bytes = data_length;
	if (data_length > call->write_room)
		request->is_overfull = true;
	if (!request->is_overfull && fits_inline(request, length)) {
		reply_inline(request, message, length);
		return;
	}
	request->answer = malloc(length ? length : 1);
	if (!request->answer) {
		reply_nowhere(request, -ENOMEM);
		return;
	}
	memcpy(request->answer, message, length);
	request->answer_bytes = length;
	reply_answer(request);
}
