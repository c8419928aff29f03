/* SPDX-License-Identifier: BSD-2-Clause */
/* Replies: inline, by the reply chunk, or an RDMA_ERROR. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "rpc/endpoint_internal.h"

/* Posts the Receive of the next call before the reply, so that it is there when the peer learns of the grant. */
static void send_reply(struct call *call, uint32_t bytes, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	bool is_broken;

	ldma_lock(&endpoint->lock);
	is_broken = endpoint->is_broken;
	if (!is_broken) {
		endpoint->stats.in_progress--;
		endpoint->stats.replying++;
		call->is_replying = true;
		call->send_bytes = bytes;
		credits_top_up(endpoint);
		endpoint->stats.granted = credits_granted(endpoint);
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
	uint32_t bytes = ldma_rpcrdma_reply_bytes(&call->header, false);

	memmove(call->buffer.memory + bytes, message, length); /* it may be there already */
	ldma_rpcrdma_encode_reply(&call->header, 0, call->data_bytes, false, 0,
				  call->buffer.memory);
	send_reply(call, bytes + length, batch);
}

static bool fits_inline(const struct call *call, uint64_t length)
{
	uint32_t taken = ldma_rpcrdma_reply_bytes(&call->header, false);
	uint32_t most = call->shown.endpoint->config.send_inline;

	return taken <= most && length <= most - taken;
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
