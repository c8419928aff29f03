/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/pool_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t list_for(const struct pool_shard *shard)
{
	if (!shard->free)
		return POOL_LIST_NONE;
	if (shard->free == shard->buffers)
		return POOL_LIST_IDLE;
	return 31 - (uint32_t)__builtin_clz(shard->free);
}

static void leave_list(struct ldma_pool *pool, struct pool_shard *shard)
{
	if (shard->list == POOL_LIST_NONE)
		return;
	if (shard->list == POOL_LIST_IDLE)
		pool->idle_shards--;
	if (shard->next)
		shard->next->previous = shard->previous;
	if (shard->previous)
		shard->previous->next = shard->next;
	else if (!(pool->lists[shard->list] = shard->next))
		pool->with_room &= ~(1u << shard->list);
	shard->list = POOL_LIST_NONE;
}

static void enter_list(struct ldma_pool *pool, struct pool_shard *shard, uint32_t list)
{
	shard->list = list;
	if (list == POOL_LIST_NONE)
		return;
	if (list == POOL_LIST_IDLE)
		pool->idle_shards++;
	shard->previous = NULL;
	shard->next = pool->lists[list];
	if (shard->next)
		shard->next->previous = shard;
	pool->lists[list] = shard;
	pool->with_room |= 1u << list;
}

static inline void sort_in(struct ldma_pool *pool, struct pool_shard *shard)
{
	uint32_t list = list_for(shard);

	if (list == shard->list)
		return;
	leave_list(pool, shard);
	enter_list(pool, shard, list);
}

static inline void take_locked(struct ldma_pool *pool, enum ldma_pool_class class,
			       struct ldma_pool_buffer *ret)
{
	struct pool_shard *shard = pool->lists[__builtin_ctz(pool->with_room)];
	uint32_t i = ldma_free_map_take(&shard->map);
	uint32_t *stamp = &shard->stamps[i];

	shard->free--;
	sort_in(pool, shard);
	*stamp += STAMP_ONE + STAMP_TAKEN + (class == LDMA_POOL_CONTROL ? STAMP_CONTROL : 0);
	pool->taken[class]++;
	pool->takes[class]++;
	*ret = (struct ldma_pool_buffer){
		.memory = shard->memory + i * pool->stride,
		.va = shard->va + i * pool->stride,
		.handle = (uint64_t)*stamp << 32 | shard->number << pool->shift | i,
		.lkey = shard->lkey,
		.rkey = shard->rkey,
	};
	POOL_EVENT(pool, BUFFER_TAKE, buffer_take, shard->number, i, class, 0);
}

void pool_take_locked(struct ldma_pool *pool, enum ldma_pool_class class,
		      struct ldma_pool_buffer *ret)
{
	take_locked(pool, class, ret);
}

int ldma_pool_take(struct ldma_pool *pool, enum ldma_pool_class class, struct ldma_pool_buffer *ret)
{
	int result = 0;

	ldma_lock(&pool->lock);
	if (pool_has_free(pool, class))
		take_locked(pool, class, ret);
	else
		result = pool->is_closed ? -ESHUTDOWN : -EAGAIN;
	ldma_unlock(&pool->lock);
	return result;
}

/* Returns whether the pool has enough buffers without the shard. */
static bool may_go(const struct ldma_pool *pool, const struct pool_shard *shard)
{
	return POOL_MAX(pool->config.minimum, pool_spoken_for(pool)) <=
	       pool->buffers - shard->buffers;
}

/* Returns whether an idle shard should go: another is idle, too, or there are more buffers than the maximum. */
static bool has_too_much(const struct ldma_pool *pool)
{
	const struct pool_shard *idle = pool->lists[POOL_LIST_IDLE];

	return idle && (pool->idle_shards > 1 || pool->buffers > pool->usable) &&
	       may_go(pool, idle);
}

/* Called with the lock held. */
static inline int return_locked(struct ldma_pool *pool, uint64_t handle)
{
	uint32_t stamp = (uint32_t)(handle >> 32), number = (uint32_t)handle;
	uint32_t i = number & ((1u << pool->shift) - 1);
	enum ldma_pool_class class = stamp & STAMP_CONTROL ? LDMA_POOL_CONTROL : LDMA_POOL_DATA;
	struct pool_shard *shard;

	if (number >> pool->shift >= pool->shard_count)
		return -EINVAL;
	shard = pool->shards[number >> pool->shift];
	if (i >= shard->buffers || !(stamp & STAMP_TAKEN) || shard->stamps[i] != stamp)
		return -EINVAL;
	shard->stamps[i] &= ~(uint32_t)(STAMP_TAKEN | STAMP_CONTROL);
	ldma_free_map_set(&shard->map, i);
	shard->free++;
	sort_in(pool, shard);
	pool->taken[class]--;
	pool->returns++;
	POOL_EVENT(pool, BUFFER_RETURN, buffer_return, shard->number, i, class, 0);
	return 0;
}

int ldma_pool_return_with(struct ldma_pool *pool, uint64_t handle, void *context)
{
	struct ldma_pool_waiter *served = NULL;
	bool calls = false;
	int result;

	ldma_lock(&pool->lock);
	result = return_locked(pool, handle);
	if (result)
		pool->refused++;
	else if (pool->queues[LDMA_POOL_DATA].first || pool->queues[LDMA_POOL_CONTROL].first)
		pool_serve_waiters(pool, &served);
	if (has_too_much(pool))
		calls = pool_begin_call(pool);
	ldma_unlock(&pool->lock);
	if (calls)
		pool->config.call_owner(pool->config.owner);
	if (served)
		pool_complete(served, context);
	return result;
}

int ldma_pool_return(struct ldma_pool *pool, uint64_t handle)
{
	return ldma_pool_return_with(pool, handle, NULL);
}

int ldma_pool_create(const struct ldma_pool_config *config, struct ldma_pool **ret)
{
	uint32_t least = POOL_MAX(config->minimum, config->reserve);
	uint32_t maximum = config->maximum ? config->maximum : LDMA_POOL_BUFFERS_MAX;
	struct ldma_pool *pool;

	if (!config->buffer_bytes || !config->shard_buffers || !config->now_ns ||
	    config->shard_buffers > LDMA_POOL_SHARD_BUFFERS_MAX || least > maximum ||
	    maximum > LDMA_POOL_BUFFERS_MAX)
		return -EINVAL;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->config = *config;
	pool->config.maximum = maximum;
	pool->stride = ((uint64_t)config->buffer_bytes + LDMA_POOL_ALIGN - 1) / LDMA_POOL_ALIGN *
		       LDMA_POOL_ALIGN;
	while (1u << pool->shift < config->shard_buffers)
		pool->shift++;
	POOL_EVENT(pool, POOL_CREATE, pool_create, LDMA_POOL_NONE, LDMA_POOL_NONE, LDMA_POOL_DATA,
		   config->buffer_bytes);
	*ret = pool;
	return 0;
}

/* Called with the lock held, once no buffer of the shard can be taken any more. */
static void remove_shard(struct ldma_pool *pool, struct pool_shard *shard)
{
	POOL_EVENT(pool, SHARD_FREE, shard_free, shard->number, LDMA_POOL_NONE, LDMA_POOL_DATA,
		   shard->buffers);
	leave_list(pool, shard);
	pool->buffers -= shard->buffers;
	pool_count_usable(pool);
	shard->buffers = shard->free = 0;
	shard->next = pool->vacant;
	pool->vacant = shard;
	pool->used_shards--;
	pool->shards_removed++;
}

void ldma_pool_close(struct ldma_pool *pool)
{
	struct ldma_pool_waiter *served = NULL;

	ldma_lock(&pool->lock);
	if (!pool->is_closed) {
		uint32_t taken = pool_taken(pool);

		pool->is_closed = true;
		memset(pool->taken, 0, sizeof(pool->taken));
		for (uint32_t i = 0; i < pool->shard_count; i++)
			if (pool->shards[i]->buffers)
				remove_shard(pool, pool->shards[i]);
		pool_fail_waiters(pool, &served);
		POOL_EVENT(pool, POOL_DESTROY, pool_destroy, LDMA_POOL_NONE, LDMA_POOL_NONE,
			   LDMA_POOL_DATA, taken);
	}
	ldma_unlock(&pool->lock);
	pool_complete(served, NULL);
}

void ldma_pool_destroy(struct ldma_pool *pool)
{
	if (!pool)
		return;
	ldma_pool_close(pool);
	for (uint32_t i = 0; i < pool->shard_count; i++)
		free(pool->shards[i]);
	free(pool->shards);
	free(pool);
}

uint64_t ldma_pool_stride(const struct ldma_pool *pool)
{
	return pool->stride;
}

uint32_t ldma_pool_shard_of(const struct ldma_pool *pool, uint64_t handle)
{
	return (uint32_t)handle >> pool->shift;
}

int ldma_pool_set_bounds(struct ldma_pool *pool, uint32_t minimum, uint32_t maximum)
{
	struct ldma_pool_waiter *served = NULL;
	bool calls = false;

	maximum = maximum ? maximum : LDMA_POOL_BUFFERS_MAX;
	if (POOL_MAX(minimum, pool->config.reserve) > maximum || maximum > LDMA_POOL_BUFFERS_MAX)
		return -EINVAL;
	ldma_lock(&pool->lock);
	pool->config.minimum = minimum;
	pool->config.maximum = maximum;
	pool_count_usable(pool);
	pool_serve_waiters(pool, &served);
	if (has_too_much(pool))
		calls = pool_begin_call(pool);
	ldma_unlock(&pool->lock);
	if (calls)
		pool->config.call_owner(pool->config.owner);
	pool_complete(served, NULL);
	return 0;
}

uint32_t ldma_pool_room(struct ldma_pool *pool)
{
	uint32_t room;

	ldma_lock(&pool->lock);
	room = pool->is_closed ? 0 : pool_room(pool);
	ldma_unlock(&pool->lock);
	return room;
}

bool ldma_pool_is_short(struct ldma_pool *pool)
{
	bool is_short;

	ldma_lock(&pool->lock);
	is_short = pool->buffers < POOL_MAX(pool->config.minimum, pool->config.reserve);
	ldma_unlock(&pool->lock);
	return is_short;
}

/* Makes a shard, its map and its stamps in one allocation. */
static struct pool_shard *make_shard(uint32_t buffers)
{
	size_t words = ldma_free_map_words(buffers);
	struct pool_shard *shard = calloc(1, sizeof(*shard) + words * sizeof(uint64_t) +
						     (size_t)buffers * sizeof(uint32_t));

	if (!shard)
		return NULL;
	ldma_free_map_init(&shard->map, (uint64_t *)(shard + 1), buffers);
	shard->stamps = (uint32_t *)((uint64_t *)(shard + 1) + words);
	shard->list = POOL_LIST_NONE;
	return shard;
}

/* Called with the lock held. Finds a shard to fill: one that was used before, or a new one. */
static int find_vacant(struct ldma_pool *pool, struct pool_shard **ret)
{
	struct pool_shard **table, *shard = pool->vacant;
	uint32_t capacity;

	if (shard) {
		pool->vacant = shard->next;
		*ret = shard;
		return 0;
	}
	if (pool->shard_count == pool->shard_capacity) {
		capacity = pool->shard_capacity ? pool->shard_capacity * 2 : 8;
		table = realloc(pool->shards, capacity * sizeof(struct pool_shard *));
		if (!table)
			return -ENOMEM;
		pool->shards = table;
		pool->shard_capacity = capacity;
	}
	if ((uint64_t)(pool->shard_count + 1) << pool->shift > UINT32_MAX)
		return -ENOSPC;
	shard = make_shard(pool->config.shard_buffers);
	if (!shard)
		return -ENOMEM;
	shard->number = pool->shard_count;
	pool->shards[pool->shard_count++] = shard;
	*ret = shard;
	return 0;
}

/* Called with the lock held. */
static int add_locked(struct ldma_pool *pool, const struct ldma_pool_shard *given, uint32_t *ret)
{
	struct pool_shard *shard;
	int result;

	if (pool->is_closed)
		return -ESHUTDOWN;
	if (given->buffers > pool_room(pool))
		return -ENOSPC;
	result = find_vacant(pool, &shard);
	if (result)
		return result;
	shard->memory = given->memory;
	shard->va = given->va;
	shard->lkey = given->lkey;
	shard->rkey = given->rkey;
	shard->buffers = shard->free = given->buffers;
	ldma_free_map_fill(&shard->map, given->buffers, true);
	pool->buffers += given->buffers;
	pool_count_usable(pool);
	pool->used_shards++;
	pool->shards_added++;
	sort_in(pool, shard);
	*ret = shard->number;
	POOL_EVENT(pool, SHARD_NEW, shard_new, shard->number, LDMA_POOL_NONE, LDMA_POOL_DATA,
		   given->buffers);
	return 0;
}

int ldma_pool_add_shard(struct ldma_pool *pool, const struct ldma_pool_shard *shard, uint32_t *ret)
{
	struct ldma_pool_waiter *served = NULL;
	int result;

	if (!shard->memory || !shard->buffers || (uintptr_t)shard->memory % LDMA_POOL_ALIGN ||
	    shard->va % LDMA_POOL_ALIGN)
		return -EINVAL;
	ldma_lock(&pool->lock);
	result = add_locked(pool, shard, ret);
	if (!result)
		pool_serve_waiters(pool, &served);
	ldma_unlock(&pool->lock);
	pool_complete(served, NULL);
	return result;
}

int ldma_pool_retire_shard(struct ldma_pool *pool, uint32_t keep_idle, uint32_t *ret)
{
	struct pool_shard *shard = NULL;

	ldma_lock(&pool->lock);
	if (pool->buffers > pool->usable)
		keep_idle = 0;
	if (pool->idle_shards > keep_idle)
		shard = pool->lists[POOL_LIST_IDLE];
	while (shard && !may_go(pool, shard))
		shard = shard->next;
	if (shard) {
		ldma_free_map_fill(&shard->map, shard->buffers, false);
		*ret = shard->number;
		remove_shard(pool, shard);
	}
	ldma_unlock(&pool->lock);
	return shard ? 0 : -EAGAIN;
}
