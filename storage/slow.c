/* The slow path: whole messages, gathered in memory of the process, and answers that bring their data along. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "endpoint_internal.h"

static uint64_t padded(uint64_t length)
{
	return (length + 3) & ~UINT64_C(3);
}

/* The reduced message: what came inline, or is the chunk at position 0. */
static uint64_t reduced_bytes(const struct request *request)
{
	return request->header.proc == LDMA_RPCRDMA_MSG ? request->call.length
							: request->header.reads[0].length;
}

static uint32_t first_data_chunk(const struct request *request)
{
	return request->header.proc == LDMA_RPCRDMA_MSG ? 0 : 1;
}

static uint64_t whole_bytes(const struct request *request)
{
	uint64_t bytes = reduced_bytes(request);

	for (uint32_t i = first_data_chunk(request); i < request->header.read_count; i++)
		bytes += padded(request->header.reads[i].length);
	return bytes;
}

static void plan(struct request *request, const struct ldma_rpcrdma_chunk *chunk, uint64_t from,
		 uint64_t to, uint64_t length)
{
	if (length)
		request->fetches[request->fetch_count++] = (struct fetch){
			.chunk = chunk, .from = from, .length = length, .to = request->whole + to};
}

/* The next length bytes of the reduced message, from its byte `from` on. */
static void plan_reduced(struct request *request, uint64_t from, uint64_t to, uint64_t length)
{
	if (request->header.proc == LDMA_RPCRDMA_MSG)
		memcpy(request->whole + to, request->call.message + from, length);
	else
		plan(request, &request->header.reads[0], from, to, length);
}

/* Where everything goes. -EPROTO: a chunk belongs behind the message's end. */
static int plan_all(struct request *request)
{
	uint64_t used = 0, end = 0, reduced = reduced_bytes(request);

	for (uint32_t i = first_data_chunk(request); i < request->header.read_count; i++) {
		const struct ldma_rpcrdma_chunk *chunk = &request->header.reads[i];
		uint64_t wanted = chunk->position - end;

		if (wanted > reduced - used)
			return -EPROTO;
		plan_reduced(request, used, end, wanted);
		plan(request, chunk, 0, chunk->position, chunk->length);
		used += wanted;
		end = chunk->position + padded(chunk->length);
		memset(request->whole + chunk->position + chunk->length, 0,
		       padded(chunk->length) - chunk->length);
	}
	plan_reduced(request, used, end, reduced - used);
	return 0;
}

static void refuse(struct request *request, int error)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;

	ldma_lock(&endpoint->lock);
	if (error == -ENOMEM)
		endpoint->stats.errors.memory++;
	else
		endpoint->stats.errors.message++;
	ldma_unlock(&endpoint->lock);
	reply_error(request, LDMA_RPCRDMA_ERR_CHUNK);
}

static void fetch_next(struct request *request, int error)
{
	if (error) {
		refuse(request, error);
	} else if (request->fetched < request->fetch_count) {
		const struct fetch *fetch = &request->fetches[request->fetched++];

		transfer_start(request, fetch->chunk, fetch->from, fetch->to, fetch->length, true,
			       fetch_next);
	} else if (request->whole_bytes < 4 || get32(request->whole) != request->call.xid) {
		refuse(request, -EPROTO);
	} else {
		service_queue(request->call.endpoint->service, request);
	}
}

static void gather(struct request *request)
{
	int error = -ENOMEM;

	request->whole = malloc(request->whole_bytes ? request->whole_bytes : 1);
	request->fetches = calloc(2 * LDMA_RPCRDMA_CHUNKS + 1, sizeof(*request->fetches));
	request->fetch_count = request->fetched = 0;
	if (request->whole && request->fetches)
		error = plan_all(request);
	fetch_next(request, error);
}

/* Whether there is room for the first that waits for it. The endpoint is locked. */
static bool may_gather(const struct ldma_endpoint *endpoint, const struct request *request)
{
	return request->whole_bytes <=
	       endpoint->config.gathered_bytes - endpoint->stats.gathered_bytes;
}

void slow_begin(struct request *request)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	bool is_now;

	if (!request->header.read_count) {
		service_queue(endpoint->service, request);
		return;
	}
	if (whole_bytes(request) > endpoint->config.message_bytes) {
		refuse(request, -EMSGSIZE);
		return;
	}
	request->whole_bytes = whole_bytes(request);
	ldma_lock(&endpoint->lock);
	is_now = !endpoint->to_gather.first && may_gather(endpoint, request);
	if (is_now)
		endpoint->stats.gathered_bytes += request->whole_bytes;
	else
		list_append(&endpoint->to_gather, request);
	ldma_unlock(&endpoint->lock);
	if (is_now)
		gather(request);
}

void slow_forget(struct request *request)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	struct request *next = NULL;

	free(request->whole);
	free(request->fetches);
	free(request->answer);
	free(request->data);
	request->whole = request->answer = request->data = NULL;
	request->fetches = NULL;
	if (!request->whole_bytes)
		return;
	ldma_lock(&endpoint->lock);
	endpoint->stats.gathered_bytes -= request->whole_bytes;
	request->whole_bytes = 0;
	if (endpoint->to_gather.first && may_gather(endpoint, endpoint->to_gather.first)) {
		next = list_take(&endpoint->to_gather);
		endpoint->stats.gathered_bytes += next->whole_bytes;
	}
	ldma_unlock(&endpoint->lock);
	if (next)
		gather(next);
}

const uint8_t *ldma_call_message(const struct ldma_call *call, uint64_t *ret_length)
{
	const struct request *request = request_of(call);

	*ret_length = request->whole ? request->whole_bytes : call->length;
	return request->whole ? request->whole : call->message;
}

static void data_is_written(struct request *request, int error)
{
	if (error)
		refuse(request, error);
	else
		reply_answer(request);
}

/* The message with its data in place, or without. */
static bool copy_answer(struct request *request, const uint8_t *message, uint64_t length,
			const void *data, uint64_t data_length, uint64_t data_offset)
{
	uint64_t room = padded(data_length), behind = data_offset + room;

	request->answer_bytes = length + room;
	request->answer = malloc(request->answer_bytes ? request->answer_bytes : 1);
	if (!request->answer)
		return false;
	memcpy(request->answer, message, data_offset);
	if (data_length) {
		memset(request->answer + behind - (room - data_length), 0, room - data_length);
		memcpy(request->answer + data_offset, data, data_length);
	}
	memcpy(request->answer + behind, message + data_offset, length - data_offset);
	return true;
}

void ldma_call_answer(struct ldma_call *call, const void *message, uint64_t length,
		      const void *data, uint64_t data_length, uint64_t data_offset)
{
	struct request *request = request_of(call);
	bool is_placed = call->has_write && data_length;

	if (is_placed && data_length > call->write_room)
		request->is_overfull = true;
	if (request->is_overfull || !copy_answer(request, message, length, data,
						 is_placed ? 0 : data_length, data_offset)) {
		if (request->is_overfull)
			reply_answer(request);
		else
			refuse(request, -ENOMEM);
		return;
	}
	if (!is_placed) {
		reply_answer(request);
		return;
	}
	request->data = malloc(data_length);
	if (!request->data) {
		refuse(request, -ENOMEM);
		return;
	}
	memcpy(request->data, data, data_length);
	request->data_bytes = data_length;
	transfer_start(request, &request->header.writes[0], 0, request->data, data_length, false,
		       data_is_written);
}
