/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers between memory of the process and a chunk, through data buffers, a few at a time. */
#include <errno.h>
#include <string.h>

#include "rpc/endpoint_internal.h"

static void piece_came(struct ldma_piece *piece, struct ldma_rpc_batch *batch);

/* Claims a piece for the next data. NULL: all has been asked for, or no piece is free. The endpoint is locked. */
static struct ldma_piece *claim(struct transfer *transfer, uint32_t most)
{
	uint64_t left = transfer->length - transfer->asked;
	struct ldma_piece *piece;

	if (transfer->error || !left || !transfer->free_pieces)
		return NULL;
	piece = &transfer->pieces[__builtin_ctz(transfer->free_pieces)];
	transfer->free_pieces &= transfer->free_pieces - 1;
	transfer->under_way++;
	piece->offset = transfer->from + transfer->asked;
	piece->length = left < most ? (uint32_t)left : most;
	piece->done = piece_came;
	transfer->asked += piece->length;
	return piece;
}

/* Frees a piece that is over. The endpoint is locked. */
static void release(struct transfer *transfer, const struct ldma_piece *piece, int error)
{
	transfer->free_pieces |= 1u << (piece - transfer->pieces);
	if (error && !transfer->error)
		transfer->error = error;
}

/* A message that is too long to go inline has a chunk for itself. It is control traffic: what moves data of files has
 * that in chunks of their own (RFC 8166, 3.4.1 and 3.4.4), and there data takes no buffer of the pool's reserve. */
static enum ldma_pool_class class_of(const struct call *call,
				     const struct ldma_rpcrdma_chunk *chunk)
{
	const struct ldma_rpcrdma *header = &call->header;
	bool is_message = chunk == &header->reply ||
			  (header->proc == LDMA_RPCRDMA_NOMSG && chunk == &header->reads[0]);

	return is_message ? LDMA_POOL_CONTROL : LDMA_POOL_DATA;
}

static void copy(const struct transfer *transfer, struct ldma_piece *piece,
		 struct ldma_rpc_batch *batch)
{
	uint8_t *memory = transfer->memory + (piece->offset - transfer->from);

	if (transfer->is_pull) {
		memcpy(memory, piece->memory, piece->length);
		ldma_piece_drop(piece, batch);
	} else {
		memcpy(piece->memory, memory, piece->length);
		ldma_piece_push(piece, piece->length, batch);
	}
}

/* Goes on as far as it can, after the end of a piece if that is not NULL. The thread counts as one under way, in place
 * of the piece that ended, so the call is not over before the thread leaves. */
static void advance(struct call *call, const struct ldma_piece *ended, int error,
		    struct ldma_rpc_batch *batch)
{
	struct transfer *transfer = &call->transfer;
	const struct ldma_endpoint_config *config = &call->shown.endpoint->config;
	struct ldma_lock *lock = &call->shown.endpoint->lock;
	struct ldma_piece *piece;
	bool is_over;

	ldma_lock(lock);
	if (ended)
		release(transfer, ended, error);
	while ((piece = claim(transfer, config->data_bytes))) {
		ldma_unlock(lock);
		error = piece_ask(call, transfer->chunk, transfer->is_pull,
				  class_of(call, transfer->chunk), piece, batch);
		if (!error)
			copy(transfer, piece, batch);
		ldma_lock(lock);
		if (error != -EINPROGRESS) {
			release(transfer, piece, error);
			transfer->under_way--;
		}
	}
	is_over = !--transfer->under_way;
	ldma_unlock(lock);
	if (is_over)
		transfer->complete(call, transfer->error, batch);
}

static void piece_came(struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	struct call *call = call_of(piece->call);

	if (!piece->error)
		copy(&call->transfer, piece, batch);
	advance(call, piece, piece->error, batch);
}

void transfer_start(struct call *call, const struct ldma_rpcrdma_chunk *chunk, uint64_t from,
		    uint8_t *memory, uint64_t length, bool is_pull,
		    void (*complete)(struct call *call, int error, struct ldma_rpc_batch *batch),
		    struct ldma_rpc_batch *batch)
{
	call->transfer = (struct transfer){
		.chunk = chunk,
		.memory = memory,
		.from = from,
		.length = length,
		.under_way = 1,
		.free_pieces = (1u << TRANSFER_PIECES) - 1,
		.is_pull = is_pull,
		.complete = complete,
	};
	advance(call, NULL, 0, batch);
}
