/* Pieces: data buffers on their way between a program and a chunk of the peer's. */
#include <errno.h>
#include <stdlib.h>

#include "endpoint_internal.h"

#define BLOCK_PIECES 16

static struct piece *take_free(struct ldma_endpoint *endpoint)
{
	struct piece *piece = endpoint->free_pieces;

	if (!piece) {
		struct block *block =
			calloc(1, sizeof(*block) + BLOCK_PIECES * sizeof(struct piece));
		struct piece *pieces;

		if (!block)
			return NULL;
		block->next = endpoint->blocks;
		endpoint->blocks = block;
		pieces = (struct piece *)(block + 1);
		for (uint32_t i = 0; i < BLOCK_PIECES; i++) {
			pieces[i].next = endpoint->free_pieces;
			endpoint->free_pieces = &pieces[i];
		}
		piece = endpoint->free_pieces;
	}
	endpoint->free_pieces = piece->next;
	return piece;
}

/* Where in the chunk's segments an offset is. */
static void seek(struct piece *piece)
{
	const struct ldma_rpcrdma_segment *segments =
		&piece->request->header.segments[piece->chunk->first];
	uint64_t left = piece->shown.offset;

	piece->posted = piece->segment = 0;
	while (piece->segment < piece->chunk->count && left >= segments[piece->segment].length)
		left -= segments[piece->segment++].length;
	piece->segment_used = (uint32_t)left;
}

static void set_free(struct ldma_endpoint *endpoint, struct piece *piece)
{
	ldma_lock(&endpoint->lock);
	piece->next = endpoint->free_pieces;
	endpoint->free_pieces = piece;
	ldma_unlock(&endpoint->lock);
}

void piece_free(struct piece *piece)
{
	struct ldma_endpoint *endpoint = piece->request->call.endpoint;
	uint64_t handle = piece->buffer.handle;

	set_free(endpoint, piece);
	if (handle)
		ldma_pool_return(endpoint->config.data_pool, handle);
}

/* Its owner is told that there will be no data, or no buffer. */
static void fail(struct piece *piece, int error)
{
	uint64_t handle = piece->buffer.handle;

	piece->buffer.handle = 0;
	piece->shown.memory = NULL;
	piece->shown.error = error;
	if (handle)
		ldma_pool_return(piece->request->call.endpoint->config.data_pool, handle);
	piece->done(&piece->shown);
}

static void has_buffer(struct piece *piece)
{
	struct ldma_endpoint *endpoint = piece->request->call.endpoint;
	bool is_broken;

	piece->shown.memory = piece->buffer.memory;
	if (!piece->is_pull) {
		piece->done(&piece->shown);
		return;
	}
	seek(piece);
	ldma_lock(&endpoint->lock);
	is_broken = endpoint->is_broken;
	if (!is_broken)
		outbox_append(endpoint, &piece->op, OP_READ);
	ldma_unlock(&endpoint->lock);
	if (is_broken)
		fail(piece, -ECONNRESET);
	else
		outbox_submit(endpoint, 0);
}

static void leave_queue(struct ldma_endpoint *endpoint, struct piece *piece)
{
	if (piece->previous)
		piece->previous->next = piece->next;
	else
		endpoint->waiting = piece->next;
	if (piece->next)
		piece->next->previous = piece->previous;
	endpoint->stats.waiting_pieces--;
}

static void enter_queue(struct ldma_endpoint *endpoint, struct piece *piece)
{
	piece->previous = NULL;
	piece->next = endpoint->waiting;
	if (piece->next)
		piece->next->previous = piece;
	endpoint->waiting = piece;
	endpoint->stats.waiting_pieces++;
}

static void record_wait(struct ldma_endpoint *endpoint, struct piece *piece)
{
	piece->request->call.waited_ns += piece->waiter.waited_ns;
	ldma_times_add(&endpoint->stats.buffer_waits, piece->waiter.waited_ns);
}

/* The pool's word that waiting is over. */
static void waited(struct ldma_pool_waiter *waiter)
{
	struct piece *piece = CONTAINER(waiter, struct piece, waiter);
	struct ldma_endpoint *endpoint = piece->request->call.endpoint;
	bool is_broken;

	ldma_lock(&endpoint->lock);
	leave_queue(endpoint, piece);
	record_wait(endpoint, piece);
	is_broken = endpoint->is_broken;
	ldma_unlock(&endpoint->lock);
	if (!waiter->result)
		piece->buffer = waiter->buffer;
	if (waiter->result || is_broken)
		fail(piece, -ESHUTDOWN);
	else
		has_buffer(piece);
}

struct piece *piece_cancel_all(struct ldma_endpoint *endpoint)
{
	struct piece *cancelled = NULL, *next;

	for (struct piece *piece = endpoint->waiting; piece; piece = next) {
		next = piece->next;
		/* Who has got its buffer at this very moment ends by itself, when it has the lock. */
		if (ldma_pool_cancel(endpoint->config.data_pool, &piece->waiter))
			continue;
		leave_queue(endpoint, piece);
		record_wait(endpoint, piece);
		piece->next = cancelled;
		cancelled = piece;
	}
	return cancelled;
}

void piece_fail_all(struct piece *pieces)
{
	while (pieces) {
		struct piece *piece = pieces;

		pieces = piece->next;
		fail(piece, -ESHUTDOWN);
	}
}

int piece_ask(struct request *request, const struct ldma_rpcrdma_chunk *chunk, uint64_t offset,
	      uint32_t length, bool is_pull, ldma_piece_fn done, void *user)
{
	struct ldma_endpoint *endpoint = request->call.endpoint;
	struct piece *piece = NULL;
	int result = -EAGAIN;

	ldma_lock(&endpoint->lock);
	if (request->pieces < LDMA_CALL_PIECES) {
		piece = take_free(endpoint);
		result = piece ? 0 : -ENOMEM;
	}
	if (!piece) {
		ldma_unlock(&endpoint->lock);
		return result;
	}
	request->pieces++;
	piece->shown = (struct ldma_piece){
		.call = &request->call, .length = length, .offset = offset, .user = user};
	piece->buffer.handle = 0;
	piece->request = request;
	piece->chunk = chunk;
	piece->done = done;
	piece->is_pull = is_pull;
	piece->waiter.complete = waited;
	result = endpoint->is_broken ? -ESHUTDOWN
				     : ldma_pool_wait(endpoint->config.data_pool, LDMA_POOL_DATA,
						      &piece->waiter);
	if (result == -EINPROGRESS)
		enter_queue(endpoint, piece);
	ldma_unlock(&endpoint->lock);
	if (!result) {
		piece->buffer = piece->waiter.buffer;
		has_buffer(piece);
	} else if (result != -EINPROGRESS) {
		fail(piece, -ESHUTDOWN);
	}
	return 0;
}

void piece_end_pull(struct piece *piece, int error)
{
	if (error)
		fail(piece, error);
	else
		piece->done(&piece->shown);
}

uint64_t ldma_call_connection(const struct ldma_call *call)
{
	return call->endpoint->config.number;
}

uint32_t ldma_call_piece_bytes(const struct ldma_call *call)
{
	return call->endpoint->config.data_bytes;
}

int ldma_call_pull(struct ldma_call *call, uint64_t offset, uint32_t length, ldma_piece_fn done,
		   void *user)
{
	struct request *request = request_of(call);

	if (!length || length > call->endpoint->config.data_bytes || offset > call->read_length ||
	    length > call->read_length - offset)
		return -EINVAL;
	return piece_ask(request, &request->header.reads[0], offset, length, true, done, user);
}

int ldma_call_room(struct ldma_call *call, uint64_t offset, ldma_piece_fn done, void *user)
{
	struct request *request = request_of(call);

	if (!call->has_write || offset > call->write_room)
		return -EINVAL;
	return piece_ask(request, &request->header.writes[0], offset,
			 call->endpoint->config.data_bytes, false, done, user);
}

static void no_more_mine(struct piece *piece)
{
	struct ldma_endpoint *endpoint = piece->request->call.endpoint;

	ldma_lock(&endpoint->lock);
	piece->request->pieces--;
	ldma_unlock(&endpoint->lock);
}

void ldma_piece_push(struct ldma_piece *shown, uint32_t length)
{
	struct piece *piece = CONTAINER(shown, struct piece, shown);
	struct request *request = piece->request;
	struct ldma_endpoint *endpoint = request->call.endpoint;
	uint64_t room = piece->chunk->length - shown->offset;
	bool is_over = !length || !piece->buffer.handle;

	if (length > room || length > endpoint->config.data_bytes) {
		request->is_overfull = true;
		is_over = true;
	}
	if (is_over) {
		ldma_piece_drop(shown);
		return;
	}
	shown->length = length;
	seek(piece);
	ldma_lock(&endpoint->lock);
	request->pieces--;
	is_over = endpoint->is_broken;
	if (!is_over) {
		endpoint->stats.bytes_pushed += length;
		outbox_append(endpoint, &piece->op, OP_WRITE);
	}
	ldma_unlock(&endpoint->lock);
	if (is_over)
		piece_free(piece);
	else
		outbox_submit(endpoint, length);
}

void ldma_piece_drop(struct ldma_piece *shown)
{
	struct piece *piece = CONTAINER(shown, struct piece, shown);

	no_more_mine(piece);
	piece_free(piece);
}
