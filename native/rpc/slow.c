/* SPDX-License-Identifier: BSD-2-Clause */
/* The slow path: it gathers whole messages in memory of the process, and sends answers with their data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "rpc/endpoint_internal.h"

static uint64_t padded(uint64_t length)
{
	return (length + 3) & ~UINT64_C(3);
}

/* Returns the length of the reduced message: that which came inline, or the chunk at position 0. */
static uint64_t reduced_bytes(const struct call *call)
{
	return call->header.proc == LDMA_RPCRDMA_MSG ? call->shown.length
						     : call->header.reads[0].length;
}

static uint32_t first_data_chunk(const struct call *call)
{
	return call->header.proc == LDMA_RPCRDMA_MSG ? 0 : 1;
}

static uint64_t whole_bytes(const struct call *call)
{
	uint64_t bytes = reduced_bytes(call);

	for (uint32_t i = first_data_chunk(call); i < call->header.read_count; i++)
		bytes += padded(call->header.reads[i].length);
	return bytes;
}

static void plan(struct call *call, const struct ldma_rpcrdma_chunk *chunk, uint64_t from,
		 uint64_t to, uint64_t length)
{
	if (length)
		call->fetches[call->fetch_count++] = (struct fetch){
			.chunk = chunk, .from = from, .length = length, .to = call->whole + to};
}

/* Plans the next length bytes of the reduced message, from its byte `from` on. */
static void plan_reduced(struct call *call, uint64_t from, uint64_t to, uint64_t length)
{
	if (call->header.proc == LDMA_RPCRDMA_MSG)
		memcpy(call->whole + to, call->shown.message + from, length);
	else
		plan(call, &call->header.reads[0], from, to, length);
}

/* Plans where everything goes. Returns 0, or -EPROTO: a chunk belongs behind the message's end. */
static int plan_all(struct call *call)
{
	uint64_t used = 0, end = 0, reduced = reduced_bytes(call);

	for (uint32_t i = first_data_chunk(call); i < call->header.read_count; i++) {
		const struct ldma_rpcrdma_chunk *chunk = &call->header.reads[i];
		uint64_t wanted = chunk->position - end;

		if (wanted > reduced - used)
			return -EPROTO;
		plan_reduced(call, used, end, wanted);
		plan(call, chunk, 0, chunk->position, chunk->length);
		used += wanted;
		end = chunk->position + padded(chunk->length);
		memset(call->whole + chunk->position + chunk->length, 0,
		       padded(chunk->length) - chunk->length);
	}
	plan_reduced(call, used, end, reduced - used);
	return 0;
}

static void refuse(struct call *call, int error, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;

	ldma_lock(&endpoint->lock);
	if (error == -ENOMEM)
		endpoint->stats.errors.memory++;
	else
		endpoint->stats.errors.message++;
	ldma_unlock(&endpoint->lock);
	reply_error(call, LDMA_RPCRDMA_ERR_CHUNK, batch);
}

static void fetch_next(struct call *call, int error, struct ldma_rpc_batch *batch)
{
	if (error) {
		refuse(call, error, batch);
	} else if (call->fetched < call->fetch_count) {
		const struct fetch *fetch = &call->fetches[call->fetched++];

		transfer_start(call, fetch->chunk, fetch->from, fetch->to, fetch->length, true,
			       fetch_next, batch);
	} else if (call->whole_bytes < 4 || get32(call->whole) != call->shown.xid) {
		refuse(call, -EPROTO, batch);
	} else {
		service_queue(call->shown.endpoint->service, call);
	}
}

static void gather(struct call *call, struct ldma_rpc_batch *batch)
{
	int error = -ENOMEM;

	call->whole = malloc(call->whole_bytes ? call->whole_bytes : 1);
	call->fetches = calloc(2 * LDMA_RPCRDMA_CHUNKS + 1, sizeof(*call->fetches));
	call->fetch_count = call->fetched = 0;
	if (call->whole && call->fetches)
		error = plan_all(call);
	fetch_next(call, error, batch);
}

/* Returns whether there is room for the call. The endpoint is locked. */
static bool may_gather(const struct ldma_endpoint *endpoint, const struct call *call)
{
	return call->whole_bytes <=
	       endpoint->config.gathered_bytes - endpoint->stats.gathered_bytes;
}

void slow_begin(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	bool is_now;

	call->has_memory = true;
	ldma_lock(&endpoint->lock);
	endpoint->stats.slow_calls++;
	ldma_unlock(&endpoint->lock);
	if (!call->header.read_count) {
		service_queue(endpoint->service, call);
		return;
	}
	if (whole_bytes(call) > endpoint->config.message_bytes) {
		refuse(call, -EMSGSIZE, batch);
		return;
	}
	call->whole_bytes = whole_bytes(call);
	ldma_lock(&endpoint->lock);
	is_now = !endpoint->to_gather.first && may_gather(endpoint, call);
	if (is_now)
		endpoint->stats.gathered_bytes += call->whole_bytes;
	else
		list_append(&endpoint->to_gather, call);
	ldma_unlock(&endpoint->lock);
	if (is_now)
		gather(call, batch);
}

void slow_forget(struct call *call, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	struct call *next = NULL;

	free(call->whole);
	free(call->fetches);
	free(call->answer);
	free(call->data);
	call->whole = call->answer = call->data = NULL;
	call->fetches = NULL;
	if (!call->whole_bytes)
		return;
	ldma_lock(&endpoint->lock);
	endpoint->stats.gathered_bytes -= call->whole_bytes;
	call->whole_bytes = 0;
	if (endpoint->to_gather.first && may_gather(endpoint, endpoint->to_gather.first)) {
		next = list_take(&endpoint->to_gather);
		endpoint->stats.gathered_bytes += next->whole_bytes;
	}
	ldma_unlock(&endpoint->lock);
	if (next)
		gather(next, batch);
}

const uint8_t *ldma_call_message(const struct ldma_call *shown, uint64_t *ret_length)
{
	const struct call *call = call_of(shown);

	*ret_length = call->whole ? call->whole_bytes : shown->length;
	return call->whole ? call->whole : shown->message;
}

static void data_is_written(struct call *call, int error, struct ldma_rpc_batch *batch)
{
	if (error)
		refuse(call, error, batch);
	else
		reply_answer(call, batch);
}

/* Copies the message, with its data in place or without. */
static bool copy_answer(struct call *call, const uint8_t *message, uint64_t length,
			const void *data, uint64_t data_length, uint64_t data_offset)
{
	uint64_t room = padded(data_length), behind = data_offset + room;

	call->answer_bytes = length + room;
	call->answer = malloc(call->answer_bytes ? call->answer_bytes : 1);
	if (!call->answer)
		return false;
	memcpy(call->answer, message, data_offset);
	if (data_length) {
		memset(call->answer + behind - (room - data_length), 0, room - data_length);
		memcpy(call->answer + data_offset, data, data_length);
	}
	memcpy(call->answer + behind, message + data_offset, length - data_offset);
	return true;
}

void ldma_call_answer(struct ldma_call *shown, const void *message, uint64_t length,
		      const void *data, uint64_t data_length, uint64_t data_offset)
{
	struct call *call = call_of(shown);
	bool is_placed = shown->has_write && data_length;

	if (is_placed && data_length > shown->write_room)
		call->is_overfull = true;
	if (call->is_overfull ||
	    !copy_answer(call, message, length, data, is_placed ? 0 : data_length, data_offset)) {
		if (call->is_overfull)
			reply_answer(call, NULL);
		else
			refuse(call, -ENOMEM, NULL);
		return;
	}
	if (!is_placed) {
		reply_answer(call, NULL);
		return;
	}
	call->data = malloc(data_length);
	if (!call->data) {
		refuse(call, -ENOMEM, NULL);
		return;
	}
	memcpy(call->data, data, data_length);
	call->data_bytes = data_length;
	transfer_start(call, &call->header.writes[0], 0, call->data, data_length, false,
		       data_is_written, NULL);
}
