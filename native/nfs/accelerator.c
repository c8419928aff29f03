/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/accelerator.h"

#include <errno.h>
#include <stdlib.h>

#include "nfs/call.h"
#include "nfs/control.h"

static struct ldma_nfs_call *take_free(struct ldma_accelerator *accelerator)
{
	struct ldma_nfs_call *call;

	ldma_lock(&accelerator->lock);
	call = accelerator->is_closed ? NULL : accelerator->free;
	if (call) {
		accelerator->free = call->next;
	} else if (!accelerator->is_closed && accelerator->made < accelerator->config.operations) {
		call = calloc(1, sizeof(*call));
		accelerator->made += call != NULL;
	}
	accelerator->in_use += call != NULL;
	ldma_unlock(&accelerator->lock);
	return call;
}

void ldma_nfs_call_free(struct ldma_nfs_call *call)
{
	struct ldma_accelerator *accelerator = call->accelerator;

	ldma_lock(&accelerator->lock);
	call->next = accelerator->free;
	accelerator->free = call;
	accelerator->in_use--;
	ldma_unlock(&accelerator->lock);
}

/* Returns whether the call and its reply fit what the session agreed and the transport can carry. */
static bool is_within_limits(const struct ldma_slots *slots, const struct ldma_call *rpc,
			     const struct ldma_compound *compound)
{
	uint64_t reply = LDMA_COMPOUND_REPLY_MAX;
	bool is_read = compound->op == LDMA_NFS_OP_READ;

	if (is_read)
		reply += compound->count;
	return rpc->reply_room >= LDMA_COMPOUND_REPLY_MAX &&
	       compound->request_bytes <= __atomic_load_n(&slots->request_max, __ATOMIC_RELAXED) &&
	       reply <= __atomic_load_n(&slots->response_max, __ATOMIC_RELAXED) &&
	       (!compound->sequence.cache_this ||
		(!is_read && slots->cache_bytes >= LDMA_COMPOUND_REPLY_MAX)) &&
	       compound->offset <= (uint64_t)INT64_MAX - compound->count &&
	       (compound->op != LDMA_NFS_OP_WRITE || compound->count);
}

/* Finds out how much there is to move. Returns whether the accelerator can do that. */
static bool measure(struct ldma_nfs_call *call)
{
	const struct ldma_compound *compound = &call->compound;
	const struct ldma_call *rpc = call->rpc;
	uint64_t most = call->accelerator->config.read_max, left = 0;

	call->is_inline = false;
	call->total = compound->op == LDMA_NFS_OP_WRITE ? compound->count : 0;
	if (compound->op != LDMA_NFS_OP_READ)
		return true;
	if (fstat(call->grant->fd, &call->stat))
		return false;
	if (compound->offset < (uint64_t)call->stat.st_size)
		left = (uint64_t)call->stat.st_size - compound->offset;
	if (rpc->has_write && most > rpc->write_room)
		most = rpc->write_room;
	if (most > compound->count)
		most = compound->count;
	call->total = left < most ? left : most;
	call->is_inline = !rpc->has_write;
	return rpc->has_write || (call->total <= LDMA_INLINE_MAX &&
				  call->total + LDMA_COMPOUND_REPLY_MAX <= rpc->reply_room);
}

/* Fills call, which then owns its references. Returns NULL, or the counter of the reason to leave it. */
static uint64_t *consider(struct ldma_accelerator *accelerator, struct ldma_call *rpc,
			  struct ldma_nfs_call *call)
{
	struct ldma_accelerator_counters *counters = &accelerator->counters;
	const struct ldma_compound *compound = &call->compound;
	struct ldma_open_key key = {
		.other = compound->other,
		.seqid = compound->seqid,
		.handle = compound->handle,
		.handle_length = compound->handle_length,
		.uid = compound->uid,
		.is_write = compound->op != LDMA_NFS_OP_READ,
	};
	uint64_t *why = NULL;

	call->accelerator = accelerator;
	call->rpc = rpc;
	/* A session's first call on a connection binds it (RFC 8881 2.10.3.1), which Python does. */
	call->slots =
		ldma_sessions_find(&accelerator->sessions, compound->session_id, rpc->connection);
	if (!call->slots)
		return &counters->left_session;
	key.client = call->slots->client;
	call->grant = ldma_opens_find(&accelerator->opens, &key);
	if (!call->grant) {
		ldma_slots_put(call->slots);
		return &counters->left_stateid;
	}
	if (!is_within_limits(call->slots, rpc, compound) || !measure(call))
		why = &counters->left_limit;
	else if (!ldma_slots_try(call->slots, &compound->sequence, rpc->received_ns))
		why = &counters->left_slot;
	if (why) {
		ldma_grant_put(call->grant);
		ldma_slots_put(call->slots);
	}
	return why;
}

static bool take(struct ldma_program *program, struct ldma_call *rpc, struct ldma_rpc_batch *batch)
{
	struct ldma_accelerator *accelerator = (struct ldma_accelerator *)program;
	struct ldma_accelerator_counters *counters = &accelerator->counters;
	struct ldma_nfs_call *call = take_free(accelerator);
	uint64_t *why = &counters->left_limit;

	if (call) {
		bool has_shape = ldma_compound_decode(&call->compound, rpc->message, rpc->length,
						      rpc->read_position, rpc->read_length);

		call->accelerator = accelerator;
		why = has_shape ? consider(accelerator, rpc, call) : &counters->left_shape;
	}
	if (!why) {
		ldma_nfs_call_begin(call, batch);
		return true;
	}
	ldma_lock(&accelerator->stats_lock);
	++*why;
	ldma_unlock(&accelerator->stats_lock);
	if (call)
		ldma_nfs_call_free(call);
	return false;
}

int ldma_accelerator_create(const struct ldma_accelerator_config *config,
			    struct ldma_changes *changes, uint64_t *verifier,
			    struct ldma_accelerator **ret)
{
	struct ldma_accelerator *accelerator = calloc(1, sizeof(*accelerator));
	int result;

	if (!accelerator)
		return -ENOMEM;
	accelerator->program.take = take;
	accelerator->program.is_control = ldma_is_control;
	accelerator->config = *config;
	accelerator->changes = changes;
	accelerator->verifier = verifier;
	result = ldma_workers_start(&accelerator->workers, config->threads, config->has_reserve);
	if (result)
		free(accelerator);
	else
		*ret = accelerator;
	return result;
}

void ldma_accelerator_close(struct ldma_accelerator *accelerator)
{
	ldma_lock(&accelerator->lock);
	accelerator->is_closed = true;
	ldma_unlock(&accelerator->lock);
}

uint32_t ldma_accelerator_in_use(struct ldma_accelerator *accelerator)
{
	uint32_t in_use;

	ldma_lock(&accelerator->lock);
	in_use = accelerator->in_use;
	ldma_unlock(&accelerator->lock);
	return in_use;
}

void ldma_accelerator_stop(struct ldma_accelerator *accelerator)
{
	ldma_workers_stop(&accelerator->workers);
	ldma_sessions_clear(&accelerator->sessions);
	ldma_opens_clear(&accelerator->opens);
}

void ldma_accelerator_destroy(struct ldma_accelerator *accelerator)
{
	ldma_accelerator_stop(accelerator);
	while (accelerator->free) {
		struct ldma_nfs_call *call = accelerator->free;

		accelerator->free = call->next;
		free(call);
	}
	free(accelerator);
}
