/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a call: what its reply says, its slot, its counters. */
#include "nfs/call.h"

#include <errno.h>

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

/* Finds what the reply says of the file. */
static void look_at_file(struct ldma_nfs_call *call, struct ldma_compound_result *result)
{
	struct ldma_changes *changes = call->accelerator->changes;
	const struct ldma_grant *grant = call->grant;
	bool is_changed = call->compound.op == LDMA_NFS_OP_WRITE;
	uint64_t ctime_ns;

	if (!is_changed && !call->compound.has_getattr)
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

static void end_slot(struct ldma_nfs_call *call, uint32_t reply_length)
{
	struct ldma_slots *slots = call->slots;
	const struct ldma_compound *compound = &call->compound;
	const struct ldma_call *rpc = call->rpc;
	bool is_kept = compound->op != LDMA_NFS_OP_READ;
	struct ldma_slots_took took = {
		.now_ns = __atomic_load_n(&call->ended_ns, __ATOMIC_RELAXED),
		.read_bytes = rpc->read_bytes,
		.written_bytes = rpc->written_bytes,
		.waited_ns = rpc->waited_ns,
		.storage_ns = rpc->storage_ns,
	};

	if (call->is_lost) {
		/* The client sends it again, over another connection: the same bytes to the same place. */
		ldma_slots_cancel(slots, compound->sequence.slot);
		return;
	}
	if (!call->error)
		ldma_slots_count(slots, ldma_nfs_call_kind(call), call->total);
	ldma_slots_account(slots, compound->sequence.slot, &took);
	ldma_slots_end(slots, compound->sequence.slot,
		       is_kept ? call->reply + LDMA_RPC_REPLY_BYTES : NULL,
		       is_kept ? reply_length - LDMA_RPC_REPLY_BYTES : 0);
}

static void count_end(struct ldma_nfs_call *call)
{
	struct ldma_accelerator *accelerator = call->accelerator;
	struct ldma_kind_counters *kind = &accelerator->kinds[ldma_nfs_call_kind(call)];

	ldma_lock(&accelerator->stats_lock);
	kind->calls++;
	if (call->is_lost)
		accelerator->counters.lost++;
	else if (call->error)
		kind->errors++;
	else
		kind->bytes += call->total;
	ldma_unlock(&accelerator->stats_lock);
}

static void count_bytes(struct ldma_nfs_call *call)
{
	struct ldma_call *rpc = call->rpc;

	if (call->error || call->is_lost)
		return;
	if (call->compound.op == LDMA_NFS_OP_READ)
		rpc->read_bytes = call->total;
	else
		rpc->written_bytes = call->total;
}

void ldma_nfs_answer(struct ldma_nfs_call *call)
{
	struct ldma_compound_result result = {
		.limits = ldma_slots_limits(call->slots),
		.status_flags = __atomic_load_n(&call->slots->status_flags, __ATOMIC_RELAXED),
		.status = status_of(call->error),
		.count = (uint32_t)call->total,
		.committed = call->compound.stable,
		.verifier = call->verifier,
	};
	uint64_t pushed = 0;
	uint32_t length;

	if (call->compound.op == LDMA_NFS_OP_READ) {
		result.is_eof = call->is_short ||
				call->compound.offset + call->total >= (uint64_t)call->stat.st_size;
		pushed = call->error || call->is_inline ? 0 : call->total;
	}
	/* A WRITE returns the verifier from before its data was written: if the data is lost at once, COMMIT returns
	 * another. */
	if (call->compound.op == LDMA_NFS_OP_COMMIT)
		result.verifier = ldma_nfs_call_verifier(call);
	look_at_file(call, &result);
	length = ldma_compound_encode(&call->compound, &result, call->is_inline, call->reply);
	count_bytes(call);
	end_slot(call, length);
	count_end(call);
	ldma_call_reply(call->rpc, call->reply, length, pushed);
	ldma_slots_put(call->slots);
	ldma_grant_put(call->grant);
	ldma_nfs_call_free(call);
}
