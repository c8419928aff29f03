/* SPDX-License-Identifier: BSD-2-Clause */
/* Data buffers that move between pieces of a program and a chunk of the peer. */
#include <errno.h>
#include <stdlib.h>

#include "rpc/endpoint_internal.h"

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

/* Finds the segment of the chunk where the piece's offset is. */
static void seek(struct piece *piece)
{
	const struct ldma_rpcrdma_segment *segments =
		&piece->call->header.segments[piece->chunk->first];
	uint64_t left = piece->offset;

	piece->posted = piece->segment = 0;
	while (piece->segment < piece->chunk->count && left >= segments[piece->segment].length)
		left -= segments[piece->segment++].length;
	piece->segment_used = (uint32_t)left;
}

/* The endpoint is locked. */
static void set_free(struct ldma_endpoint *endpoint, struct piece *piece)
{
	piece->next = endpoint->free_pieces;
	endpoint->free_pieces = piece;
}

void piece_free(struct piece *piece, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = piece->call->shown.endpoint;
	uint64_t handle = piece->buffer.handle;

	ldma_lock(&endpoint->lock);
	set_free(endpoint, piece);
	ldma_unlock(&endpoint->lock);
	if (handle)
		ldma_pool_return_with(endpoint->config.data_pool, handle, batch);
}

/* Takes a piece back from the program, and frees it. */
static void take_back(struct piece *piece, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = piece->call->shown.endpoint;
	uint64_t handle = piece->buffer.handle;

	ldma_lock(&endpoint->lock);
	piece->call->pieces--;
	set_free(endpoint, piece);
	ldma_unlock(&endpoint->lock);
	if (handle)
		ldma_pool_return_with(endpoint->config.data_pool, handle, batch);
}

/* Tells the program that there will be no data, or no buffer. */
static void fail(struct piece *piece, int error, struct ldma_rpc_batch *batch)
{
	struct ldma_piece *shown = piece->shown;

	take_back(piece, batch);
	shown->memory = NULL;
	shown->error = error;
	shown->done(shown, batch);
}

/* Gives the piece the buffer that came; a pull is queued to be posted. The endpoint is locked. */
static void has_buffer(struct ldma_endpoint *endpoint, struct piece *piece)
{
	piece->buffer = piece->waiter.buffer;
	piece->shown->memory = piece->buffer.memory;
	if (!piece->is_pull)
		return;
	seek(piece);
	outbox_append(endpoint, &piece->posting, false);
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
	piece->call->shown.waited_ns += piece->waiter.waited_ns;
	ldma_times_add(&endpoint->stats.buffer_waits, piece->waiter.waited_ns);
}

/* Is called by the pool when the waiting is over. */
static void waited(struct ldma_pool_waiter *waiter, void *batch)
{
	struct piece *piece = CONTAINER(waiter, struct piece, waiter);
	struct ldma_endpoint *endpoint = piece->call->shown.endpoint;
	bool is_pull = piece->is_pull, is_there;

	ldma_lock(&endpoint->lock);
	leave_queue(endpoint, piece);
	record_wait(endpoint, piece);
	is_there = !waiter->result && !endpoint->is_broken;
	if (is_there)
		has_buffer(endpoint, piece);
	else if (!waiter->result)
		piece->buffer = waiter->buffer;
	ldma_unlock(&endpoint->lock);
	if (!is_there)
		fail(piece, -ESHUTDOWN, batch);
	else if (is_pull)
		outbox_submit(endpoint, 0, batch);
	else
		piece->shown->done(piece->shown, batch);
}

struct piece *piece_cancel_all(struct ldma_endpoint *endpoint)
{
	struct piece *cancelled = NULL, *next;

	for (struct piece *piece = endpoint->waiting; piece; piece = next) {
		next = piece->next;
		/* A piece that gets its buffer right now is ended by `waited`, once that has the lock. */
		if (ldma_pool_cancel(endpoint->config.data_pool, &piece->waiter))
			continue;
		leave_queue(endpoint, piece);
		record_wait(endpoint, piece);
		piece->next = cancelled;
		cancelled = piece;
	}
	return cancelled;
}

void piece_fail_all(struct piece *pieces, struct ldma_rpc_batch *batch)
{
	while (pieces) {
		struct piece *piece = pieces;

		pieces = piece->next;
		fail(piece, -ESHUTDOWN, batch);
	}
}

int piece_ask(struct call *call, const struct ldma_rpcrdma_chunk *chunk, bool is_pull,
	      enum ldma_pool_class class, struct ldma_piece *shown, struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	struct piece *piece = NULL;
	int result = 0;

	ldma_lock(&endpoint->lock);
	if (call->pieces == LDMA_CALL_PIECES)
		result = -EAGAIN;
	else if (endpoint->is_broken)
		result = -ESHUTDOWN;
	else if (!(piece = take_free(endpoint)))
		result = -ENOMEM;
	if (!result) {
		piece->shown = shown;
		piece->buffer.handle = 0;
		piece->call = call;
		piece->chunk = chunk;
		piece->offset = shown->offset;
		piece->length = shown->length;
		piece->is_pull = is_pull;
		piece->waiter.complete = waited;
		shown->call = &call->shown;
		shown->error = 0;
		shown->transport = piece;
		result = ldma_pool_wait(endpoint->config.data_pool, class, &piece->waiter);
		if (!result)
			has_buffer(endpoint, piece);
		else if (result == -EINPROGRESS)
			enter_queue(endpoint, piece);
		else
			set_free(endpoint, piece);
		call->pieces += !result || result == -EINPROGRESS;
	}
	ldma_unlock(&endpoint->lock);
	if (result || !is_pull)
		return result;
	outbox_submit(endpoint, 0, batch);
	return -EINPROGRESS;
}

void piece_end_pull(struct piece *piece, int error, struct ldma_rpc_batch *batch)
{
	if (error)
		fail(piece, error, batch);
	else
		piece->shown->done(piece->shown, batch);
}

int ldma_call_pull(struct ldma_call *shown, struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	struct call *call = call_of(shown);

	if (!piece->length || piece->length > shown->piece_bytes ||
	    piece->offset > shown->read_length ||
	    piece->length > shown->read_length - piece->offset)
		return -EINVAL;
	return piece_ask(call, &call->header.reads[0], true, LDMA_POOL_DATA, piece, batch);
}

int ldma_call_room(struct ldma_call *shown, struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	struct call *call = call_of(shown);

	if (!shown->has_write || piece->offset > shown->write_room ||
	    piece->length > shown->piece_bytes)
		return -EINVAL;
	return piece_ask(call, &call->header.writes[0], false, LDMA_POOL_DATA, piece, batch);
}

void ldma_piece_push(struct ldma_piece *shown, uint32_t length, struct ldma_rpc_batch *batch)
{
	struct piece *piece = shown->transport;
	struct call *call = piece->call;
	struct ldma_endpoint *endpoint = call->shown.endpoint;
	bool is_over;

	if (length > piece->chunk->length - piece->offset || length > endpoint->config.data_bytes) {
		call->is_overfull = true;
		length = 0;
	}
	if (!length) {
		take_back(piece, batch);
		return;
	}
	piece->length = length;
	seek(piece);
	ldma_lock(&endpoint->lock);
	call->pieces--;
	is_over = endpoint->is_broken;
	if (!is_over) {
		endpoint->stats.bytes_pushed += length;
		outbox_append(endpoint, &piece->posting, false);
	}
	ldma_unlock(&endpoint->lock);
	if (is_over)
		piece_free(piece, batch);
	else
		outbox_submit(endpoint, length, batch);
}

void ldma_piece_drop(struct ldma_piece *shown, struct ldma_rpc_batch *batch)
{
	take_back(shown->transport, batch);
}
