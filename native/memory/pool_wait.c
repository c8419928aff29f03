/* SPDX-License-Identifier: BSD-2-Clause */
/* The queues of waiters of a pool, and the calls that report on a pool. */
#include "memory/pool_internal.h"

#include <errno.h>

static void leave_queue(struct ldma_pool *pool, struct ldma_pool_waiter *waiter)
{
	struct pool_queue *queue = &pool->queues[waiter->class];

	if (waiter->previous)
		waiter->previous->next = waiter->next;
	else
		queue->first = waiter->next;
	if (waiter->next)
		waiter->next->previous = waiter->previous;
	else
		queue->last = waiter->previous;
	queue->length--;
	waiter->is_queued = false;
}

static void enter_queue(struct ldma_pool *pool, struct ldma_pool_waiter *waiter)
{
	struct pool_queue *queue = &pool->queues[waiter->class];

	waiter->next = NULL;
	waiter->previous = queue->last;
	if (queue->last)
		queue->last->next = waiter;
	else
		queue->first = waiter;
	queue->last = waiter;
	queue->length++;
	waiter->is_queued = true;
	waiter->since_ns = pool->config.now_ns();
}

/* Takes the waiter out of its queue and sets its result. */
static void finish(struct ldma_pool *pool, struct ldma_pool_waiter *waiter, int result)
{
	uint64_t now_ns = pool->config.now_ns();
	uint32_t shard = LDMA_POOL_NONE, buffer = LDMA_POOL_NONE;

	leave_queue(pool, waiter);
	waiter->result = result;
	waiter->waited_ns = now_ns > waiter->since_ns ? now_ns - waiter->since_ns : 0;
	ldma_histogram_add(&pool->waits[waiter->class], waiter->waited_ns);
	if (result) {
		pool->gave_up[waiter->class]++;
	} else {
		shard = ldma_pool_shard_of(pool, waiter->buffer.handle);
		buffer = (uint32_t)waiter->buffer.handle & ((1u << pool->shift) - 1);
	}
	POOL_EVENT(pool, BUFFER_WAIT, buffer_wait, shard, buffer, waiter->class, waiter->waited_ns);
}

/* Finishes the first waiter of a queue and appends it to the list, which uses the same links. */
static void finish_first(struct ldma_pool *pool, enum ldma_pool_class class, int result,
			 struct ldma_pool_waiter ***end)
{
	struct ldma_pool_waiter *waiter = pool->queues[class].first;

	if (!result)
		pool_take_locked(pool, class, &waiter->buffer);
	finish(pool, waiter, result);
	waiter->next = NULL;
	**end = waiter;
	*end = &waiter->next;
}

void pool_serve_waiters(struct ldma_pool *pool, struct ldma_pool_waiter **served)
{
	while (pool->queues[LDMA_POOL_CONTROL].first && pool_has_free(pool, LDMA_POOL_CONTROL))
		finish_first(pool, LDMA_POOL_CONTROL, 0, &served);
	while (pool->queues[LDMA_POOL_DATA].first && pool_has_free(pool, LDMA_POOL_DATA))
		finish_first(pool, LDMA_POOL_DATA, 0, &served);
}

void pool_fail_waiters(struct ldma_pool *pool, struct ldma_pool_waiter **served)
{
	for (int class = LDMA_POOL_CLASSES - 1; class >= 0; class--)
		while (pool->queues[class].first)
			finish_first(pool, (enum ldma_pool_class)class, -ESHUTDOWN, &served);
}

void pool_complete(struct ldma_pool_waiter *served, void *context)
{
	while (served) {
		struct ldma_pool_waiter *waiter = served;

		served = waiter->next; /* complete gives the waiter back */
		waiter->complete(waiter, context);
	}
}

int ldma_pool_wait(struct ldma_pool *pool, enum ldma_pool_class class,
		   struct ldma_pool_waiter *waiter)
{
	bool calls = false;
	int result;

	waiter->class = class;
	waiter->is_queued = false;
	waiter->waited_ns = 0;
	ldma_lock(&pool->lock);
	if (pool_has_free(pool, class)) {
		pool_take_locked(pool, class, &waiter->buffer);
		waiter->result = 0;
	} else if (pool->is_closed) {
		waiter->result = -ESHUTDOWN;
	} else {
		waiter->result = -EINPROGRESS;
		enter_queue(pool, waiter);
		if (pool_room(pool))
			calls = pool_begin_call(pool);
	}
	result = waiter->result; /* other threads may change it once the lock is free */
	ldma_unlock(&pool->lock);
	if (calls)
		pool->config.call_owner(pool->config.owner);
	return result;
}

int ldma_pool_cancel(struct ldma_pool *pool, struct ldma_pool_waiter *waiter)
{
	int result = -EALREADY;

	ldma_lock(&pool->lock);
	if (waiter->is_queued) {
		finish(pool, waiter, -ECANCELED);
		result = 0;
	}
	ldma_unlock(&pool->lock);
	return result;
}

bool ldma_pool_is_calling(const struct ldma_pool *pool)
{
	return __atomic_load_n(&pool->is_calling, __ATOMIC_RELAXED);
}

void ldma_pool_answer(struct ldma_pool *pool)
{
	ldma_lock(&pool->lock);
	__atomic_store_n(&pool->is_calling, false, __ATOMIC_RELAXED);
	ldma_unlock(&pool->lock);
}

void ldma_pool_get_stats(struct ldma_pool *pool, struct ldma_pool_stats *ret)
{
	ldma_lock(&pool->lock);
	*ret = (struct ldma_pool_stats){
		.shards = pool->used_shards,
		.idle_shards = pool->idle_shards,
		.buffers = pool->buffers,
		.free = pool->buffers - pool_taken(pool),
		.returns = pool->returns,
		.refused = pool->refused,
		.shards_added = pool->shards_added,
		.shards_removed = pool->shards_removed,
	};
	for (int class = 0; class < LDMA_POOL_CLASSES; class++) {
		const struct pool_queue *queue = &pool->queues[class];

		ret->taken[class] = pool->taken[class];
		ret->takes[class] = pool->takes[class];
		ret->gave_up[class] = pool->gave_up[class];
		ret->waiting[class] = queue->length;
		if (queue->first)
			ret->oldest_ns[class] = pool->config.now_ns() - queue->first->since_ns;
	}
	ldma_unlock(&pool->lock);
}

uint32_t ldma_pool_get_shards(struct ldma_pool *pool, struct ldma_pool_shard_use *ret,
			      uint32_t most)
{
	uint32_t count = 0;

	ldma_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->shard_count; i++) {
		const struct pool_shard *shard = pool->shards[i];

		if (!shard->buffers)
			continue;
		if (count < most)
			ret[count] = (struct ldma_pool_shard_use){shard->va, shard->buffers,
								  shard->buffers - shard->free};
		count++;
	}
	ldma_unlock(&pool->lock);
	return count;
}

void ldma_pool_get_waits(struct ldma_pool *pool, enum ldma_pool_class class,
			 struct ldma_histogram *ret)
{
	ldma_lock(&pool->lock);
	*ret = pool->waits[class];
	ldma_unlock(&pool->lock);
}
