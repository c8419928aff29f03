#include "operation.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "monotonic.h"

static void advance(struct ldma_operation *operation, const struct ldma_part *ended, int error);

static enum ldma_kind kind_of(const struct ldma_operation *operation)
{
	switch (operation->compound.op) {
	case LDMA_OP_READ:
		return LDMA_KIND_READ;
	case LDMA_OP_WRITE:
		return LDMA_KIND_WRITE;
	default:
		return LDMA_KIND_COMMIT;
	}
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

static void record(struct ldma_part *part, uint64_t storage_ns, bool is_by_worker)
{
	struct ldma_operation *operation = part->operation;
	struct ldma_accelerator *accelerator = operation->accelerator;

	ldma_call_stored(operation->call, storage_ns, is_by_worker ? part->work.queued_ns : 0);
	ldma_lock(&accelerator->stats_lock);
	ldma_histogram_add(&accelerator->kinds[kind_of(operation)].storage, storage_ns);
	if (is_by_worker)
		accelerator->counters.by_worker++;
	else
		accelerator->counters.at_once++;
	ldma_unlock(&accelerator->stats_lock);
}

/* Once a sync has failed, what was written before may be lost: clients have to send it again. */
static void sync_failed(struct ldma_accelerator *accelerator)
{
	__atomic_fetch_add(accelerator->verifier, 1, __ATOMIC_RELAXED);
	ldma_lock(&accelerator->stats_lock);
	accelerator->counters.sync_failures++;
	ldma_unlock(&accelerator->stats_lock);
}

static int sync_file(const struct ldma_operation *operation)
{
	bool is_data = operation->compound.op == LDMA_OP_WRITE &&
		       operation->compound.stable == LDMA_DATA_SYNC;

	if (is_data ? fdatasync(operation->grant->fd) : fsync(operation->grant->fd)) {
		int error = errno;

		sync_failed(operation->accelerator);
		return error;
	}
	return 0;
}

/* What the reply says of the file. */
static void look_at_file(struct ldma_operation *operation, struct ldma_compound_result *result)
{
	struct ldma_changes *changes = operation->accelerator->changes;
	const struct ldma_grant *grant = operation->grant;
	bool is_changed = operation->compound.op == LDMA_OP_WRITE;
	uint64_t ctime_ns;

	if (!is_changed && !operation->compound.has_getattr)
		return;
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

static void end_slot(struct ldma_operation *operation, uint32_t reply_length)
{
	struct ldma_slots *slots = operation->slots;
	const struct ldma_compound *compound = &operation->compound;
	const struct ldma_call *call = operation->call;
	bool is_kept = compound->op != LDMA_OP_READ;
	struct ldma_slots_took took = {
		.now_ns = __atomic_load_n(&operation->ended_ns, __ATOMIC_RELAXED),
		.read_bytes = call->read_bytes,
		.written_bytes = call->written_bytes,
		.waited_ns = call->waited_ns,
		.storage_ns = call->storage_ns,
	};

	if (operation->is_lost) {
		/* The client sends it again, over another connection; it is the same bytes to the same place. */
		ldma_slots_cancel(slots, compound->sequence.slot);
		return;
	}
	if (!operation->error)
		ldma_slots_count(slots, kind_of(operation), operation->total);
	ldma_slots_account(slots, compound->sequence.slot, &took);
	ldma_slots_end(slots, compound->sequence.slot,
		       is_kept ? operation->reply + LDMA_RPC_REPLY_BYTES : NULL,
		       is_kept ? reply_length - LDMA_RPC_REPLY_BYTES : 0);
}

static void count_end(struct ldma_operation *operation)
{
	struct ldma_accelerator *accelerator = operation->accelerator;
	struct ldma_kind_counters *kind = &accelerator->kinds[kind_of(operation)];

	ldma_lock(&accelerator->stats_lock);
	kind->calls++;
	if (operation->is_lost)
		accelerator->counters.lost++;
	else if (operation->error)
		kind->errors++;
	else
		kind->bytes += operation->total;
	ldma_unlock(&accelerator->stats_lock);
}

static void count_bytes(struct ldma_operation *operation)
{
	struct ldma_call *call = operation->call;

	if (operation->error || operation->is_lost)
		return;
	if (operation->compound.op == LDMA_OP_READ)
		call->read_bytes = operation->total;
	else
		call->written_bytes = operation->total;
}

static uint64_t current_verifier(const struct ldma_operation *operation)
{
	return __atomic_load_n(operation->accelerator->verifier, __ATOMIC_RELAXED);
}

static void finish(struct ldma_operation *operation)
{
	struct ldma_compound_result result = {
		.limits = ldma_slots_limits(operation->slots),
		.status_flags = __atomic_load_n(&operation->slots->status_flags, __ATOMIC_RELAXED),
		.status = status_of(operation->error),
		.count = (uint32_t)operation->total,
		.committed = operation->compound.stable,
		.verifier = operation->verifier,
	};
	uint64_t pushed = 0;
	uint32_t length;

	if (operation->compound.op == LDMA_OP_READ) {
		result.is_eof =
			operation->is_short || operation->compound.offset + operation->total >=
						       (uint64_t)operation->stat.st_size;
		pushed = operation->error || operation->is_inline ? 0 : operation->total;
	}
	/* A WRITE tells the verifier from before its data was written: if that gets lost at once, COMMIT tells another. */
	if (operation->compound.op == LDMA_OP_COMMIT)
		result.verifier = current_verifier(operation);
	look_at_file(operation, &result);
	length = ldma_compound_encode(&operation->compound, &result, operation->is_inline,
				      operation->reply);
	count_bytes(operation);
	end_slot(operation, length);
	count_end(operation);
	ldma_call_reply(operation->call, operation->reply, length, pushed);
	ldma_slots_put(operation->slots);
	ldma_grant_put(operation->grant);
	ldma_operation_free(operation);
}

/* Its storage call is over. */
static void end_part(struct ldma_part *part, int error, bool is_by_worker)
{
	struct ldma_operation *operation = part->operation;
	bool is_read = operation->compound.op == LDMA_OP_READ;
	uint64_t now_ns = ldma_now_ns();

	__atomic_store_n(&operation->ended_ns, now_ns, __ATOMIC_RELAXED);
	record(part, now_ns - part->begun_ns, is_by_worker);
	if (part->piece && is_read && !error)
		ldma_piece_push(part->piece, part->done);
	else if (part->piece)
		ldma_piece_drop(part->piece);
	advance(operation, part, error);
}

/* Flags of one call for a part that is written. */
static int write_flags(const struct ldma_operation *operation)
{
	if (operation->needs_sync || operation->compound.stable == LDMA_UNSTABLE)
		return 0;
	return operation->compound.stable == LDMA_DATA_SYNC ? RWF_DSYNC : RWF_SYNC;
}

/* One storage call for what the part still lacks: bytes, 0 at the end of a file, or a negative error. */
static ssize_t move(struct ldma_part *part, int flags)
{
	const struct ldma_operation *operation = part->operation;
	struct iovec piece = {part->memory + part->done, part->length - part->done};
	off_t at = (off_t)(operation->compound.offset + part->offset + part->done);
	ssize_t moved;

	do {
		if (operation->compound.op == LDMA_OP_READ)
			moved = preadv2(operation->grant->fd, &piece, 1, at, flags);
		else
			moved = pwritev2(operation->grant->fd, &piece, 1, at, flags);
	} while (moved < 0 && errno == EINTR);
	return moved < 0 ? -errno : moved;
}

/* An error of the system's. */
static int do_part(struct ldma_part *part)
{
	const struct ldma_operation *operation = part->operation;
	bool is_write = operation->compound.op == LDMA_OP_WRITE;
	int flags = is_write ? write_flags(operation) : 0;
	ssize_t moved = 1;

	while (part->done < part->length && moved > 0) {
		moved = move(part, flags);
		if (moved > 0)
			part->done += (uint32_t)moved;
	}
	if (moved == 0 && is_write)
		moved = -EIO;
	if (flags && (moved == -EIO || moved == -ENOSPC || moved == -EDQUOT))
		sync_failed(operation->accelerator);
	return moved < 0 ? (int)-moved : 0;
}

/* The next part for the worker that writes for the operation, which is free without. */
static struct ldma_part *next_to_write(struct ldma_operation *operation)
{
	struct ldma_part *part;

	ldma_lock(&operation->lock);
	part = operation->to_write;
	if (part)
		operation->to_write = part->next;
	else
		operation->has_writer = false;
	ldma_unlock(&operation->lock);
	return part;
}

/* The operation may be over with the end of a part that no other follows. */
static void run_writes(struct ldma_work *work)
{
	struct ldma_part *part = (struct ldma_part *)work;

	while (part) {
		int error = do_part(part);
		struct ldma_part *next = next_to_write(part->operation);

		end_part(part, error, true);
		part = next;
		if (part)
			part->work.queued_ns = ldma_now_ns() - part->begun_ns;
	}
}

static void run_part(struct ldma_work *work)
{
	struct ldma_part *part = (struct ldma_part *)work;

	end_part(part, do_part(part), true);
}

/* Whether some worker writes for the operation already, and will write this part, too. */
static bool join_writer(struct ldma_operation *operation, struct ldma_part *part)
{
	struct ldma_part **at = &operation->to_write;
	bool has_writer;

	part->next = NULL;
	ldma_lock(&operation->lock);
	has_writer = operation->has_writer;
	operation->has_writer = true;
	while (has_writer && *at)
		at = &(*at)->next;
	if (has_writer)
		*at = part;
	ldma_unlock(&operation->lock);
	return has_writer;
}

/* Reads what is in memory. Whether the part is complete. Writing is for workers: they have no privileges, which would keep a
 * file's set-user-ID bit, quotas and reserved blocks from having their effect. */
static bool read_at_once(struct ldma_part *part)
{
	const struct ldma_operation *operation = part->operation;
	struct ldma_grant *grant = operation->grant;
	ssize_t moved;

	if (operation->compound.op != LDMA_OP_READ ||
	    ldma_workers_are_slow(&operation->accelerator->workers) ||
	    __atomic_load_n(&grant->cannot_nowait, __ATOMIC_RELAXED))
		return false;
	moved = move(part, RWF_NOWAIT);
	if (moved == -EOPNOTSUPP)
		__atomic_store_n(&grant->cannot_nowait, true, __ATOMIC_RELAXED);
	if (moved > 0)
		part->done += (uint32_t)moved;
	return part->done == part->length;
}

static void start_part(struct ldma_part *part)
{
	struct ldma_operation *operation = part->operation;
	struct ldma_workers *workers = &operation->accelerator->workers;

	part->begun_ns = ldma_now_ns();
	if (read_at_once(part)) {
		end_part(part, 0, false);
		return;
	}
	part->work.run = run_part;
	/* Writes to one file wait for each other anyway. A slow store is so for each of them. */
	if (operation->compound.op == LDMA_OP_WRITE && !ldma_workers_are_slow(workers)) {
		if (join_writer(operation, part))
			return;
		part->work.run = run_writes;
	}
	ldma_workers_submit(workers, &part->work);
}

static void piece_came(struct ldma_piece *piece)
{
	struct ldma_part *part = piece->user;
	struct ldma_operation *operation = part->operation;

	if (piece->error) {
		ldma_piece_drop(piece);
		__atomic_store_n(&operation->is_lost, true, __ATOMIC_RELAXED);
		advance(operation, part, EIO);
		return;
	}
	part->piece = piece;
	part->memory = piece->memory;
	start_part(part);
}

static void run_sync(struct ldma_work *work)
{
	struct ldma_part *part = (struct ldma_part *)work;

	end_part(part, sync_file(part->operation), true);
}

/* Begins a part that was claimed. */
static void launch(struct ldma_operation *operation, struct ldma_part *part, bool is_sync)
{
	struct ldma_call *call = operation->call;
	int error;

	if (is_sync) {
		part->begun_ns = ldma_now_ns();
		part->work.run = run_sync;
		ldma_workers_submit(&operation->accelerator->workers, &part->work);
		return;
	}
	if (part->memory) {
		start_part(part);
		return;
	}
	if (operation->compound.op == LDMA_OP_READ)
		error = ldma_call_room(call, part->offset, piece_came, part);
	else
		error = ldma_call_pull(call, part->offset, part->length, piece_came, part);
	if (error)
		advance(operation, part, -error);
}

/* Where the data is, or goes, if not in pieces. */
static uint8_t *own_memory(struct ldma_operation *operation)
{
	if (operation->is_inline)
		return operation->reply + ldma_compound_data_at(&operation->compound);
	return (uint8_t *)operation->compound.data;
}

enum step { STEP_WAIT, STEP_PART, STEP_SYNC, STEP_FINISH };

/* What is next, under the lock; a part is claimed for it. */
static enum step next_step(struct ldma_operation *operation, struct ldma_part **ret)
{
	const uint32_t all = (1u << LDMA_CALL_PIECES) - 1;
	uint8_t *memory = own_memory(operation);
	uint64_t left = operation->total - operation->next_offset;
	uint32_t most = ldma_call_piece_bytes(operation->call);
	bool is_moving = !operation->error && operation->next_offset < operation->total;
	struct ldma_part *part;

	if (!is_moving && operation->free_parts != all)
		return STEP_WAIT;
	if (!is_moving && (operation->error || !operation->needs_sync))
		return STEP_FINISH;
	if (!operation->free_parts)
		return STEP_WAIT;
	part = &operation->parts[__builtin_ctz(operation->free_parts)];
	operation->free_parts &= operation->free_parts - 1;
	part->operation = operation;
	part->piece = NULL;
	part->memory = memory;
	part->offset = operation->next_offset;
	part->length = is_moving ? (uint32_t)(memory || left < most ? left : most) : 0;
	part->done = 0;
	*ret = part;
	if (!is_moving) {
		operation->needs_sync = false;
		return STEP_SYNC;
	}
	operation->next_offset += part->length;
	return STEP_PART;
}

/* A part is over. A READ that found the end of its file has less to give. */
static void release(struct ldma_operation *operation, const struct ldma_part *part, int error)
{
	if (error && !operation->error)
		operation->error = error;
	if (!error && operation->compound.op == LDMA_OP_READ && part->done < part->length) {
		operation->is_short = true;
		if (operation->total > part->offset + part->done)
			operation->total = part->offset + part->done;
	}
	operation->free_parts |= 1u << (part - operation->parts);
}

/* Goes on as far as it can, after the end of a part if it is not NULL. Of threads that come here together one does, for
 * the others: who has given its part back and finds another one at it must not touch the operation again. */
static void advance(struct ldma_operation *operation, const struct ldma_part *ended, int error)
{
	struct ldma_part *part;
	enum step step;

	ldma_lock(&operation->lock);
	if (ended)
		release(operation, ended, error);
	if (operation->is_advancing) {
		ldma_unlock(&operation->lock);
		return;
	}
	operation->is_advancing = true;
	while ((step = next_step(operation, &part)) == STEP_PART || step == STEP_SYNC) {
		ldma_unlock(&operation->lock);
		launch(operation, part, step == STEP_SYNC);
		ldma_lock(&operation->lock);
	}
	operation->is_advancing = false;
	ldma_unlock(&operation->lock);
	if (step == STEP_FINISH)
		finish(operation);
}

void ldma_operation_begin(struct ldma_operation *operation)
{
	const struct ldma_compound *compound = &operation->compound;
	bool is_stable = compound->stable != LDMA_UNSTABLE;

	operation->next_offset = 0;
	operation->free_parts = (1u << LDMA_CALL_PIECES) - 1;
	operation->is_short = operation->is_lost = operation->has_writer = false;
	operation->to_write = NULL;
	operation->error = 0;
	operation->ended_ns = operation->call->received_ns;
	operation->verifier = current_verifier(operation);
	/* One write may be stable by itself; for several one sync at the end is cheaper. */
	operation->needs_sync = compound->op == LDMA_OP_COMMIT ||
				(compound->op == LDMA_OP_WRITE && is_stable && !compound->data &&
				 operation->total > ldma_call_piece_bytes(operation->call));
	advance(operation, NULL, 0);
}
