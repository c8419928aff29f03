/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps of a call: which piece is next, and when all is done. */
#include "nfs/call.h"

#include <errno.h>
#include <stddef.h>

#define ALL_PIECES ((1u << LDMA_CALL_PIECES) - 1)

/* Returns the memory of the data, or NULL if it is the transport's. */
static uint8_t *own_memory(struct ldma_nfs_call *call)
{
	if (call->is_inline)
		return call->reply + ldma_compound_data_at(&call->compound);
	return (uint8_t *)call->compound.data;
}

/* Notes that the connection ended before all of the data had come. */
static int lose(struct ldma_nfs_call *call)
{
	__atomic_store_n(&call->is_lost, true, __ATOMIC_RELAXED);
	return EIO;
}

static void piece_came(struct ldma_piece *data)
{
	struct ldma_nfs_piece *piece =
		(struct ldma_nfs_piece *)((char *)data - offsetof(struct ldma_nfs_piece, data));
	int error = data->error ? lose(piece->call) : ldma_nfs_store(piece);

	if (error != EINPROGRESS)
		ldma_nfs_call_advance(piece->call, piece, error);
}

/* Claims a piece for the next data. NULL: all has been asked for, or no piece is free. The call is locked. */
static struct ldma_nfs_piece *claim(struct ldma_nfs_call *call)
{
	uint64_t left = call->total - call->next_offset;
	struct ldma_nfs_piece *piece;
	uint8_t *memory;
	uint32_t most;

	if (call->error || call->next_offset >= call->total || !call->free_pieces)
		return NULL;
	memory = own_memory(call);
	most = call->rpc->piece_bytes;
	piece = &call->pieces[__builtin_ctz(call->free_pieces)];
	call->free_pieces &= call->free_pieces - 1;
	call->under_way++;
	piece->call = call;
	piece->is_lent = !memory;
	piece->moved = 0;
	piece->data.memory = memory;
	piece->data.offset = call->next_offset;
	piece->data.length = (uint32_t)(memory || left < most ? left : most);
	piece->data.done = piece_came;
	call->next_offset += piece->data.length;
	return piece;
}

/* Frees a piece that is over. A READ that found the end of its file has less to give. The call is locked. */
static void release(struct ldma_nfs_call *call, const struct ldma_nfs_piece *piece, int error)
{
	uint64_t end = piece->data.offset + piece->moved;

	if (error && !call->error)
		call->error = error;
	if (!error && call->compound.op == LDMA_NFS_OP_READ && piece->moved < piece->data.length) {
		call->is_short = true;
		if (call->total > end)
			call->total = end;
	}
	call->free_pieces |= 1u << (piece - call->pieces);
}

/* Starts a piece. Returns 0 or an error of the system: it is over; EINPROGRESS: another thread goes on with it, and
 * then with the call. */
static int start(struct ldma_nfs_piece *piece)
{
	struct ldma_nfs_call *call = piece->call;
	int result = 0;

	if (piece->is_lent && call->compound.op == LDMA_NFS_OP_READ)
		result = ldma_call_room(call->rpc, &piece->data);
	else if (piece->is_lent)
		result = ldma_call_pull(call->rpc, &piece->data);
	if (!result)
		return ldma_nfs_store(piece);
	return result == -ESHUTDOWN ? lose(call) : -result;
}

/* Syncs or replies: all is moved, or there was an error, and only this thread has the call. */
static void conclude(struct ldma_nfs_call *call)
{
	struct ldma_nfs_piece *piece = call->pieces;

	if (call->error || !call->needs_sync) {
		ldma_nfs_answer(call);
		return;
	}
	call->needs_sync = false;
	call->free_pieces &= ~1u;
	call->under_way = 1;
	*piece = (struct ldma_nfs_piece){.call = call};
	ldma_nfs_sync(piece);
}

/* The thread counts as one under way, in place of the piece that ended, so the call is not over before the thread
 * leaves. The one that leaves last concludes; no other may touch the call after it left. */
void ldma_nfs_call_advance(struct ldma_nfs_call *call, struct ldma_nfs_piece *ended, int error)
{
	struct ldma_nfs_piece *piece;
	bool is_last;

	ldma_lock(&call->lock);
	if (ended)
		release(call, ended, error);
	while ((piece = claim(call))) {
		ldma_unlock(&call->lock);
		error = start(piece);
		ldma_lock(&call->lock);
		if (error != EINPROGRESS) {
			release(call, piece, error);
			call->under_way--;
		}
	}
	is_last = !--call->under_way;
	ldma_unlock(&call->lock);
	if (is_last)
		conclude(call);
}

void ldma_nfs_call_begin(struct ldma_nfs_call *call)
{
	const struct ldma_compound *compound = &call->compound;
	bool is_stable = compound->stable != LDMA_UNSTABLE;

	call->next_offset = 0;
	call->free_pieces = ALL_PIECES;
	call->under_way = 1; /* this thread */
	call->is_short = call->is_lost = call->has_writer = false;
	call->to_write = NULL;
	call->error = 0;
	call->ended_ns = call->rpc->received_ns;
	call->verifier = ldma_nfs_call_verifier(call);
	/* One write may be stable by itself; for several one sync at the end is cheaper. */
	call->needs_sync = compound->op == LDMA_NFS_OP_COMMIT ||
			   (compound->op == LDMA_NFS_OP_WRITE && is_stable && !compound->data &&
			    call->total > call->rpc->piece_bytes);
	ldma_nfs_call_advance(call, NULL, 0);
}
