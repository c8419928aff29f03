/* SPDX-License-Identifier: BSD-2-Clause */
/* The storage calls for a piece: made at once if the data is in memory, else by a worker. */
#include "nfs/call.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/monotonic.h"

/* Ends and counts the storage call of a piece. */
static void end(struct ldma_nfs_piece *piece, int error, bool is_by_worker,
		struct ldma_rpc_batch *batch)
{
	struct ldma_nfs_call *call = piece->call;
	struct ldma_accelerator *accelerator = call->accelerator;
	uint64_t now_ns = ldma_now_ns(), storage_ns = now_ns - piece->begun_ns;

	__atomic_store_n(&call->ended_ns, now_ns, __ATOMIC_RELAXED);
	ldma_call_stored(call->rpc, storage_ns, is_by_worker ? piece->work.queued_ns : 0);
	ldma_lock(&accelerator->stats_lock);
	ldma_histogram_add(&accelerator->kinds[ldma_nfs_call_kind(call)].storage, storage_ns);
	accelerator->counters.by_worker += is_by_worker;
	accelerator->counters.at_once += !is_by_worker;
	ldma_unlock(&accelerator->stats_lock);
	if (piece->is_lent && call->compound.op == LDMA_NFS_OP_READ && !error)
		ldma_piece_push(&piece->data, piece->moved, batch);
	else if (piece->is_lent)
		ldma_piece_drop(&piece->data, batch);
}

/* Changes the verifier: after a failed sync, earlier writes may be lost, and clients have to send them again. */
static void sync_failed(struct ldma_accelerator *accelerator)
{
	__atomic_fetch_add(accelerator->verifier, 1, __ATOMIC_RELAXED);
	ldma_lock(&accelerator->stats_lock);
	accelerator->counters.sync_failures++;
	ldma_unlock(&accelerator->stats_lock);
}

static int sync_file(const struct ldma_nfs_call *call)
{
	bool is_data = call->compound.op == LDMA_NFS_OP_WRITE &&
		       call->compound.stable == LDMA_NFS_DATA_SYNC;

	if (is_data ? fdatasync(call->grant->fd) : fsync(call->grant->fd)) {
		int error = errno;

		sync_failed(call->accelerator);
		return error;
	}
	return 0;
}

/* Returns the flags of one pwritev2 for a piece. */
static int write_flags(const struct ldma_nfs_call *call)
{
	if (call->needs_sync || call->compound.stable == LDMA_NFS_UNSTABLE)
		return 0;
	return call->compound.stable == LDMA_NFS_DATA_SYNC ? RWF_DSYNC : RWF_SYNC;
}

/* Makes one storage call for what the piece still lacks. Returns bytes, 0 at the end of a file, or a negative error. */
static ssize_t move(struct ldma_nfs_piece *piece, int flags)
{
	const struct ldma_nfs_call *call = piece->call;
	struct iovec bytes = {piece->data.memory + piece->moved, piece->data.length - piece->moved};
	off_t at = (off_t)(call->compound.offset + piece->data.offset + piece->moved);
	ssize_t moved;

	do {
		if (call->compound.op == LDMA_NFS_OP_READ)
			moved = preadv2(call->grant->fd, &bytes, 1, at, flags);
		else
			moved = pwritev2(call->grant->fd, &bytes, 1, at, flags);
	} while (moved < 0 && errno == EINTR);
	return moved < 0 ? -errno : moved;
}

/* Moves all of a piece, however long that takes. Returns 0 or an error of the system. */
static int do_piece(struct ldma_nfs_piece *piece)
{
	const struct ldma_nfs_call *call = piece->call;
	bool is_write = call->compound.op == LDMA_NFS_OP_WRITE;
	int flags = is_write ? write_flags(call) : 0;
	ssize_t moved = 1;

	while (piece->moved < piece->data.length && moved > 0) {
		moved = move(piece, flags);
		if (moved > 0)
			piece->moved += (uint32_t)moved;
	}
	if (moved == 0 && is_write)
		moved = -EIO;
	if (flags && (moved == -EIO || moved == -ENOSPC || moved == -EDQUOT))
		sync_failed(call->accelerator);
	return moved < 0 ? (int)-moved : 0;
}

/* Takes the next piece for the worker that writes for the call. NULL: there is none, and that worker is done. */
static struct ldma_nfs_piece *next_to_write(struct ldma_nfs_call *call)
{
	struct ldma_nfs_piece *piece;

	ldma_lock(&call->lock);
	piece = call->to_write;
	if (piece)
		call->to_write = piece->next;
	else
		call->has_writer = false;
	ldma_unlock(&call->lock);
	return piece;
}

/* Writes pieces of a call one after the other. The call may be over once a piece ends that no other follows. */
static void run_writes(struct ldma_work *work)
{
	struct ldma_nfs_piece *piece = (struct ldma_nfs_piece *)work;

	while (piece) {
		int error = do_piece(piece);
		struct ldma_nfs_piece *next = next_to_write(piece->call);

		end(piece, error, true, NULL);
		ldma_nfs_call_advance(piece->call, piece, error, NULL);
		piece = next;
		if (piece)
			piece->work.queued_ns = ldma_now_ns() - piece->begun_ns;
	}
}

static void run_piece(struct ldma_work *work)
{
	struct ldma_nfs_piece *piece = (struct ldma_nfs_piece *)work;
	int error = do_piece(piece);

	end(piece, error, true, NULL);
	ldma_nfs_call_advance(piece->call, piece, error, NULL);
}

static void run_sync(struct ldma_work *work)
{
	struct ldma_nfs_piece *piece = (struct ldma_nfs_piece *)work;
	int error = sync_file(piece->call);

	end(piece, error, true, NULL);
	ldma_nfs_call_advance(piece->call, piece, error, NULL);
}

/* Returns whether a worker writes for the call already, and will write this piece, too. */
static bool join_writer(struct ldma_nfs_call *call, struct ldma_nfs_piece *piece)
{
	struct ldma_nfs_piece **at = &call->to_write;
	bool has_writer;

	piece->next = NULL;
	ldma_lock(&call->lock);
	has_writer = call->has_writer;
	call->has_writer = true;
	while (has_writer && *at)
		at = &(*at)->next;
	if (has_writer)
		*at = piece;
	ldma_unlock(&call->lock);
	return has_writer;
}

/* Reads what is in memory, and returns whether the piece is complete. Only workers write, as they have no privileges: a
 * privileged write would keep a file's set-user-ID bit, and ignore quotas and reserved blocks. */
static bool read_at_once(struct ldma_nfs_piece *piece)
{
	const struct ldma_nfs_call *call = piece->call;
	struct ldma_grant *grant = call->grant;
	ssize_t moved;

	if (call->compound.op != LDMA_NFS_OP_READ ||
	    ldma_workers_are_slow(&call->accelerator->workers) ||
	    __atomic_load_n(&grant->cannot_nowait, __ATOMIC_RELAXED))
		return false;
	moved = move(piece, RWF_NOWAIT);
	if (moved == -EOPNOTSUPP)
		__atomic_store_n(&grant->cannot_nowait, true, __ATOMIC_RELAXED);
	if (moved > 0)
		piece->moved += (uint32_t)moved;
	return piece->moved == piece->data.length;
}

int ldma_nfs_store(struct ldma_nfs_piece *piece, struct ldma_rpc_batch *batch)
{
	struct ldma_nfs_call *call = piece->call;
	struct ldma_workers *workers = &call->accelerator->workers;

	piece->begun_ns = ldma_now_ns();
	if (read_at_once(piece)) {
		end(piece, 0, false, batch);
		return 0;
	}
	piece->work.run = run_piece;
	piece->work.lane = LDMA_WORK_DATA;
	/* Writes to one file wait for each other anyway, so one worker does them. A slow store delays each by itself. */
	if (call->compound.op == LDMA_NFS_OP_WRITE && !ldma_workers_are_slow(workers)) {
		if (join_writer(call, piece))
			return EINPROGRESS;
		piece->work.run = run_writes;
	}
	ldma_workers_submit(workers, &piece->work);
	return EINPROGRESS;
}

void ldma_nfs_sync(struct ldma_nfs_piece *piece)
{
	piece->begun_ns = ldma_now_ns();
	piece->work.run = run_sync;
	piece->work.lane =
		piece->call->compound.op == LDMA_NFS_OP_COMMIT ? LDMA_WORK_CONTROL : LDMA_WORK_DATA;
	ldma_workers_submit(&piece->call->accelerator->workers, &piece->work);
}
