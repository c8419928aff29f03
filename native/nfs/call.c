/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps of a call: which piece is next, when all is done, and what its reply says. */
#include "nfs/call.h"

#include <errno.h>
#include <stddef.h>

#define ALL_PIECES ((1u << LDMA_CALL_PIECES) - 1)

/* Notes that the connection ended before all of the data had come. */
static int lose(struct ldma_nfs_call *call)
{
	__atomic_store_n(&call->is_lost, true, __ATOMIC_RELAXED);
	return EIO;
}

static void piece_came(struct ldma_piece *data, struct ldma_rpc_batch *batch)
{
	struct ldma_nfs_piece *piece =
		(struct ldma_nfs_piece *)((char *)data - offsetof(struct ldma_nfs_piece, data));
	int error = data->error ? lose(piece->call) : ldma_nfs_store(piece, batch);

	if (error != EINPROGRESS)
		ldma_nfs_call_advance(piece->call, piece, error, batch);
}

/* Claims a piece for the next data. NULL: all has been asked for, or no piece is free. The call is locked. */
static struct ldma_nfs_piece *claim(struct ldma_nfs_call *call)
{
	uint64_t left = call->total - call->next_offset;
	uint8_t *memory = (uint8_t *)call->compound.data; /* NULL: it is the transport's */
	uint32_t most = call->rpc->piece_bytes;
	struct ldma_nfs_piece *piece;

	if (call->error || call->next_offset >= call->total || !call->free_pieces)
		return NULL;
	if (call->is_inline)
		memory = call->reply + ldma_compound_data_at(&call->compound);
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
static int start(struct ldma_nfs_piece *piece, struct ldma_rpc_batch *batch)
{
	struct ldma_nfs_call *call = piece->call;
	int result = 0;

	if (piece->is_lent && call->compound.op == LDMA_NFS_OP_READ)
		result = ldma_call_room(call->rpc, &piece->data, batch);
	else if (piece->is_lent)
		result = ldma_call_pull(call->rpc, &piece->data, batch);
	if (!result)
		return ldma_nfs_store(piece, batch);
	return result == -ESHUTDOWN ? lose(call) : -result;
}

static enum ldma_nfs_status status_of(int error)
{
	switch (error) {
	case 0:
		return LDMA_NFS_OK;
	case EINVAL:
		return LDMA_NFS_INVAL;
	case EFBIG:
		return LDMA_NFS_FBIG;
	case ENOSPC:
		return LDMA_NFS_NOSPC;
	case EROFS:
		return LDMA_NFS_ROFS;
	case EDQUOT:
		return LDMA_NFS_DQUOT;
	case ESTALE:
		return LDMA_NFS_STALE;
	case EAGAIN:
	case ENOMEM:
	case ETIMEDOUT:
		return LDMA_NFS_DELAY;
	default:
		return LDMA_NFS_IO;
	}
}

/* Finds what the reply says of a file that was written, or of which attributes were asked for. */
static void look_at_file(struct ldma_nfs_call *call, struct ldma_compound_result *result)
{
	struct ldma_changes *changes = call->accelerator->changes;
	const struct ldma_grant *grant = call->grant;
	bool is_changed = call->compound.op == LDMA_NFS_OP_WRITE;
	uint64_t ctime_ns;

	if (fstat(grant->fd, &result->stat)) {
		result->stat_status = status_of(errno);
		return;
	}
	ctime_ns = (uint64_t)result->stat.st_ctim.tv_sec * 1000000000 +
		   (uint64_t)result->stat.st_ctim.tv_nsec;
	result->change =
		is_changed ? ldma_changes_bump(changes, grant->device, grant->inode, ctime_ns)
			   : ldma_changes_value(changes, grant->device, grant->inode, ctime_ns);
}

/* Counts what the call did, and ends its slot. */
static void account(struct ldma_nfs_call *call, uint32_t reply_length)
{
	struct ldma_accelerator *accelerator = call->accelerator;
	const struct ldma_compound *compound = &call->compound;
	enum ldma_kind kind = ldma_nfs_call_kind(call);
	struct ldma_kind_counters *counters = &accelerator->kinds[kind];
	struct ldma_call *rpc = call->rpc;
	bool is_kept = compound->op != LDMA_NFS_OP_READ;
	bool is_done = !call->error && !call->is_lost;
	struct ldma_slots_took took;

	if (is_done)
		*(is_kept ? &rpc->written_bytes : &rpc->read_bytes) = call->total;
	ldma_lock(&accelerator->stats_lock);
	accelerator->counters.taken++;
	counters->calls++;
	accelerator->counters.lost += call->is_lost;
	counters->errors += call->error && !call->is_lost;
	counters->bytes += is_done ? call->total : 0;
	ldma_unlock(&accelerator->stats_lock);
	if (call->is_lost) {
		/* The client sends it again, over another connection: the same bytes to the same place. */
		ldma_slots_cancel(call->slots, compound->sequence.slot);
		return;
	}
	took = (struct ldma_slots_took){
		.now_ns = __atomic_load_n(&call->ended_ns, __ATOMIC_RELAXED),
		.read_bytes = rpc->read_bytes,
		.written_bytes = rpc->written_bytes,
		.waited_ns = rpc->waited_ns,
		.storage_ns = rpc->storage_ns,
		.is_native = !call->error,
		.kind = kind,
	};
	ldma_slots_end(call->slots, compound->sequence.slot, &took,
		       is_kept ? call->reply + LDMA_RPC_REPLY_BYTES : NULL,
		       is_kept ? reply_length - LDMA_RPC_REPLY_BYTES : 0);
}

/* Syncs if that is still to be done; else replies and frees the call. All is moved, or there was an error, and only this
 * thread has the call. */
static void conclude(struct ldma_nfs_call *call, struct ldma_rpc_batch *batch)
{
	const struct ldma_compound *compound = &call->compound;
	struct ldma_compound_result result = {
		.status_flags = __atomic_load_n(&call->slots->status_flags, __ATOMIC_RELAXED),
		.status = status_of(call->error),
		.count = (uint32_t)call->total,
		.committed = compound->stable,
		.verifier = call->verifier,
	};
	uint64_t pushed = 0;
	uint32_t length;

	if (call->needs_sync && !call->error) {
		call->needs_sync = false;
		call->free_pieces &= ~1u;
		call->under_way = 1;
		call->pieces[0] = (struct ldma_nfs_piece){.call = call};
		ldma_nfs_sync(call->pieces);
		return;
	}
	result.limits = ldma_slots_limits(call->slots);
	if (compound->op == LDMA_NFS_OP_READ) {
		result.is_eof = call->is_short ||
				compound->offset + call->total >= (uint64_t)call->stat.st_size;
		pushed = call->error || call->is_inline ? 0 : call->total;
	}
	/* A WRITE returns the verifier from before its data was written: if the data is lost at once, COMMIT returns
	 * another. */
	if (compound->op == LDMA_NFS_OP_COMMIT)
		result.verifier = ldma_nfs_call_verifier(call);
	if (compound->op == LDMA_NFS_OP_WRITE || compound->has_getattr)
		look_at_file(call, &result);
	length = ldma_compound_encode(compound, &result, call->is_inline, call->reply);
	account(call, length);
	ldma_call_reply(call->rpc, call->reply, length, pushed, batch);
	ldma_slots_put(call->slots);
	ldma_grant_put(call->grant);
	ldma_nfs_call_free(call);
}

/* The thread counts as one under way, in place of the piece that ended, so the call is not over before the thread
 * leaves. The one that leaves last concludes; no other may touch the call after it left. */
void ldma_nfs_call_advance(struct ldma_nfs_call *call, struct ldma_nfs_piece *ended, int error,
			   struct ldma_rpc_batch *batch)
{
	struct ldma_nfs_piece *piece;
	bool is_last;

	ldma_lock(&call->lock);
	if (ended)
		release(call, ended, error);
	while ((piece = claim(call))) {
		ldma_unlock(&call->lock);
		error = start(piece, batch);
		ldma_lock(&call->lock);
		if (error != EINPROGRESS) {
			release(call, piece, error);
			call->under_way--;
		}
	}
	is_last = !--call->under_way;
	ldma_unlock(&call->lock);
	if (is_last)
		conclude(call, batch);
}

void ldma_nfs_call_begin(struct ldma_nfs_call *call, struct ldma_rpc_batch *batch)
{
	const struct ldma_compound *compound = &call->compound;
	bool is_stable = compound->stable != LDMA_NFS_UNSTABLE;

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
	ldma_nfs_call_advance(call, NULL, 0, batch);
}
