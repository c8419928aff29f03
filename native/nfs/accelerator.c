#include "accelerator.h"

#include <errno.h>
#include <stdlib.h>

#include "operation.h"

static struct ldma_operation *take_operation(struct ldma_accelerator *accelerator)
{
	struct ldma_operation *operation;

	ldma_lock(&accelerator->lock);
	operation = accelerator->is_closed ? NULL : accelerator->free;
	if (operation) {
		accelerator->free = operation->next;
	} else if (!accelerator->is_closed && accelerator->made < accelerator->config.operations) {
		operation = calloc(1, sizeof(*operation));
		accelerator->made += operation != NULL;
	}
	accelerator->in_use += operation != NULL;
	ldma_unlock(&accelerator->lock);
	return operation;
}

void ldma_operation_free(struct ldma_operation *operation)
{
	struct ldma_accelerator *accelerator = operation->accelerator;

	ldma_lock(&accelerator->lock);
	operation->next = accelerator->free;
	accelerator->free = operation;
	accelerator->in_use--;
	ldma_unlock(&accelerator->lock);
}

static struct ldma_slots *find_session(struct ldma_accelerator *accelerator,
				       const struct ldma_call *call,
				       const struct ldma_compound *compound)
{
	struct ldma_slots *slots = ldma_sessions_find(&accelerator->sessions, compound->session_id);

	/* A session's first call on a connection binds it (RFC 8881 2.10.3.1), which is not done here. */
	if (slots && !ldma_slots_is_bound(slots, ldma_call_connection(call))) {
		ldma_slots_put(slots);
		return NULL;
	}
	return slots;
}

static struct ldma_grant *find_grant(struct ldma_accelerator *accelerator,
				     const struct ldma_slots *slots,
				     const struct ldma_compound *compound)
{
	struct ldma_open_key key = {
		.other = compound->other,
		.seqid = compound->seqid,
		.handle = compound->handle,
		.handle_length = compound->handle_length,
		.client = slots->client,
		.uid = compound->uid,
		.is_write = compound->op != LDMA_OP_READ,
	};

	return ldma_opens_find(&accelerator->opens, &key);
}

/* Whether the call and its reply keep to what the session agreed and the transport can carry. */
static bool is_within_limits(const struct ldma_slots *slots, const struct ldma_call *call,
			     const struct ldma_compound *compound)
{
	uint64_t reply = LDMA_COMPOUND_REPLY_MAX;
	bool is_read = compound->op == LDMA_OP_READ;

	if (is_read)
		reply += compound->count;
	return call->reply_room >= LDMA_COMPOUND_REPLY_MAX &&
	       compound->request_bytes <= __atomic_load_n(&slots->request_max, __ATOMIC_RELAXED) &&
	       reply <= __atomic_load_n(&slots->response_max, __ATOMIC_RELAXED) &&
	       (!compound->sequence.cache_this ||
		(!is_read && slots->cache_bytes >= LDMA_COMPOUND_REPLY_MAX)) &&
	       compound->offset <= (uint64_t)INT64_MAX - compound->count &&
	       (compound->op != LDMA_OP_WRITE || compound->count);
}

/* How much there is to move. Whether that can be done here. */
static bool measure(struct ldma_operation *operation)
{
	const struct ldma_compound *compound = &operation->compound;
	const struct ldma_call *call = operation->call;
	uint64_t most = operation->accelerator->config.read_max, left = 0;

	operation->is_inline = false;
	operation->total = compound->op == LDMA_OP_WRITE ? compound->count : 0;
	if (compound->op != LDMA_OP_READ)
		return true;
	if (fstat(operation->grant->fd, &operation->stat))
		return false;
	if (compound->offset < (uint64_t)operation->stat.st_size)
		left = (uint64_t)operation->stat.st_size - compound->offset;
	if (call->has_write && most > call->write_room)
		most = call->write_room;
	if (most > compound->count)
		most = compound->count;
	operation->total = left < most ? left : most;
	operation->is_inline = !call->has_write;
	return call->has_write || (operation->total <= LDMA_INLINE_MAX &&
				   operation->total + LDMA_COMPOUND_REPLY_MAX <= call->reply_room);
}

/* Fills operation, whose references are then its own. NULL, or the counter of why it is left. */
static uint64_t *consider(struct ldma_accelerator *accelerator, struct ldma_call *call,
			  struct ldma_operation *operation)
{
	struct ldma_accelerator_counters *counters = &accelerator->counters;
	const struct ldma_compound *compound = &operation->compound;
	uint64_t *why = NULL;

	operation->accelerator = accelerator;
	operation->call = call;
	operation->slots = find_session(accelerator, call, compound);
	if (!operation->slots)
		return &counters->left_session;
	operation->grant = find_grant(accelerator, operation->slots, compound);
	if (!operation->grant) {
		ldma_slots_put(operation->slots);
		return &counters->left_stateid;
	}
	if (!is_within_limits(operation->slots, call, compound) || !measure(operation))
		why = &counters->left_limit;
	else if (!ldma_slots_try(operation->slots, &compound->sequence, call->received_ns))
		why = &counters->left_slot;
	if (why) {
		ldma_grant_put(operation->grant);
		ldma_slots_put(operation->slots);
	}
	return why;
}

static bool take(struct ldma_program *program, struct ldma_call *call)
{
	struct ldma_accelerator *accelerator = (struct ldma_accelerator *)program;
	struct ldma_accelerator_counters *counters = &accelerator->counters;
	struct ldma_operation *operation = take_operation(accelerator);
	uint64_t *why = &counters->left_limit;

	if (operation) {
		bool has_shape =
			ldma_compound_decode(&operation->compound, call->message, call->length,
					     call->read_position, call->read_length);

		operation->accelerator = accelerator;
		why = has_shape ? consider(accelerator, call, operation) : &counters->left_shape;
	}
	ldma_lock(&accelerator->stats_lock);
	++*(why ? why : &counters->taken);
	ldma_unlock(&accelerator->stats_lock);
	if (why) {
		if (operation)
			ldma_operation_free(operation);
		return false;
	}
	ldma_operation_begin(operation);
	return true;
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
	accelerator->config = *config;
	accelerator->changes = changes;
	accelerator->verifier = verifier;
	result = ldma_workers_start(&accelerator->workers, config->threads);
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
		struct ldma_operation *operation = accelerator->free;

		accelerator->free = operation->next;
		free(operation);
	}
	free(accelerator);
}
