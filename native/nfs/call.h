/* SPDX-License-Identifier: BSD-2-Clause */
/* One call that the accelerator took, from its slot to its reply.
 *
 * call.c decides what is next: pieces of the data, as many at a time as the transport gives, then a sync, then the
 * reply. store.c makes the storage calls. Any thread may go on with a call: the one that brought it, a worker, or the
 * one that gave a piece its buffer. A batch is the transport's (rpc/call.h). */
#ifndef LDMA_NFS_CALL_H
#define LDMA_NFS_CALL_H

#include "nfs/accelerator.h"
#include "nfs/compound.h"

#define LDMA_INLINE_MAX 4096 /* data of a READ within the reply itself */

/* A piece of the data, and the storage call for it. */
struct ldma_nfs_piece {
	struct ldma_work work;  /* first */
	struct ldma_piece data; /* its memory is the transport's (is_lent) or the call's own */
	struct ldma_nfs_call *call;
	struct ldma_nfs_piece *next; /* in the list of those to be written */
	uint32_t moved;              /* bytes, between memory and file */
	bool is_lent;
	uint64_t begun_ns;
};

struct ldma_nfs_call {
	struct ldma_nfs_call *next; /* while it is free */
	struct ldma_accelerator *accelerator;
	struct ldma_call *rpc; /* the transport's */
	struct ldma_slots *slots;
	struct ldma_grant *grant;
	struct ldma_compound compound;
	bool is_inline;
	uint64_t verifier; /* when it began */
	uint64_t ended_ns; /* atomic: when the last piece ended; before that, when the call came */
	bool is_lost;      /* atomic: the connection ended before all of the data had come */

	struct ldma_lock lock; /* guards what is below */
	uint64_t total;        /* bytes to move; falls if the file turns out to be shorter */
	uint64_t next_offset;  /* of the data that was not yet asked for */
	uint32_t free_pieces;  /* bits */
	uint32_t under_way;    /* pieces that are not free, and threads in ldma_nfs_call_advance */
	bool is_short;         /* the file ended */
	bool needs_sync;       /* once all is written */
	bool has_writer;       /* a worker writes for the call, and will write to_write, too */
	struct ldma_nfs_piece *to_write;
	int error;        /* the first one */
	struct stat stat; /* of a READ: before it began */
	struct ldma_nfs_piece pieces[LDMA_CALL_PIECES];

	uint8_t reply[LDMA_COMPOUND_REPLY_MAX + LDMA_INLINE_MAX];
};

static inline enum ldma_kind ldma_nfs_call_kind(const struct ldma_nfs_call *call)
{
	switch (call->compound.op) {
	case LDMA_NFS_OP_READ:
		return LDMA_KIND_READ;
	case LDMA_NFS_OP_WRITE:
		return LDMA_KIND_WRITE;
	default:
		return LDMA_KIND_COMMIT;
	}
}

static inline uint64_t ldma_nfs_call_verifier(const struct ldma_nfs_call *call)
{
	return __atomic_load_n(call->accelerator->verifier, __ATOMIC_RELAXED);
}

/* Begins a call. rpc, slots, grant, compound, is_inline and total are set, and for a READ stat. */
void ldma_nfs_call_begin(struct ldma_nfs_call *call, struct ldma_rpc_batch *batch);

/* Goes on as far as it can after a piece ended, with 0 or an error of the system. The call may be over afterwards. */
void ldma_nfs_call_advance(struct ldma_nfs_call *call, struct ldma_nfs_piece *ended, int error,
			   struct ldma_rpc_batch *batch);

/* accelerator.c: gives the call back to the free ones. */
void ldma_nfs_call_free(struct ldma_nfs_call *call);

/* store.c: reads or writes a piece that has its memory. Returns 0: it is read; EINPROGRESS: a worker goes on with it,
 * and then with the call. */
int ldma_nfs_store(struct ldma_nfs_piece *piece, struct ldma_rpc_batch *batch);

/* store.c: lets a worker sync the file, and then go on with the call. */
void ldma_nfs_sync(struct ldma_nfs_piece *piece);

#endif
