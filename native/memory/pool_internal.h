/* SPDX-License-Identifier: BSD-2-Clause */
/* Declares what the files of the pool share: its state, and what they do while they hold its lock. */
#ifndef LDMA_POOL_INTERNAL_H
#define LDMA_POOL_INTERNAL_H

#include "base/lock.h"
#include "base/probe.h"
#include "memory/pool.h"

/* Shards with room are in lists by how many buffers are free: 1, 2-3, 4-7, ...; idle shards are in the last list. */
enum { POOL_LISTS = 20, POOL_LIST_IDLE = POOL_LISTS - 1, POOL_LIST_NONE = POOL_LISTS };
_Static_assert(LDMA_POOL_SHARD_BUFFERS_MAX < 1u << POOL_LIST_IDLE, "each size has its list");

/* Bits of a buffer's stamp; above these bits it counts how often the buffer was taken. */
enum { STAMP_TAKEN = 1, STAMP_CONTROL = 2, STAMP_ONE = 4 };

struct pool_shard {
	struct ldma_free_map map;
	uint8_t *memory;
	uint64_t va;
	uint32_t lkey, rkey;
	uint32_t number;
	uint32_t buffers, free; /* buffers 0: the shard is vacant, and may be used again */
	uint32_t list;
	struct pool_shard *next, *previous;
	/* Stay when the shard goes and its struct is used again, so that old handles stay wrong. */
	uint32_t *stamps;
};

struct pool_queue {
	struct ldma_pool_waiter *first, *last;
	uint32_t length;
};

struct ldma_pool {
	struct ldma_lock lock;
	struct ldma_pool_config config;
	uint64_t stride;
	uint32_t shift; /* a buffer's number is its shard's << shift | its place there */
	bool is_closed, is_calling;

	uint32_t buffers, taken[LDMA_POOL_CLASSES];
	uint32_t usable;    /* buffers, but no more than the maximum, which may have been lowered */
	uint32_t with_room; /* mask of the lists that are not empty */
	struct pool_shard *lists[POOL_LISTS];
	struct pool_shard **shards;
	uint32_t shard_count, shard_capacity;
	struct pool_shard *vacant;
	uint32_t used_shards, idle_shards;

	struct pool_queue queues[LDMA_POOL_CLASSES];
	struct ldma_histogram waits[LDMA_POOL_CLASSES];
	uint64_t takes[LDMA_POOL_CLASSES], gave_up[LDMA_POOL_CLASSES];
	uint64_t returns, refused, shards_added, shards_removed;
};

#define POOL_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Returns how many buffers data may not take: all that are taken, and what control may still take of its reserve. */
static inline uint32_t pool_spoken_for(const struct ldma_pool *pool)
{
	return pool->taken[LDMA_POOL_DATA] +
	       POOL_MAX(pool->taken[LDMA_POOL_CONTROL], pool->config.reserve);
}

static inline uint32_t pool_taken(const struct ldma_pool *pool)
{
	return pool->taken[LDMA_POOL_DATA] + pool->taken[LDMA_POOL_CONTROL];
}

static inline bool pool_has_free(const struct ldma_pool *pool, enum ldma_pool_class class)
{
	return class == LDMA_POOL_DATA ? pool_spoken_for(pool) < pool->usable
				       : pool_taken(pool) < pool->usable;
}

/* Called with the lock held, after the number of buffers or the maximum changed. */
static inline void pool_count_usable(struct ldma_pool *pool)
{
	pool->usable = pool->buffers < pool->config.maximum ? pool->buffers : pool->config.maximum;
}

static inline uint32_t pool_room(const struct ldma_pool *pool)
{
	uint32_t room = pool->config.maximum - pool->usable;

	return room < pool->config.shard_buffers ? room : pool->config.shard_buffers;
}

/* Called with the lock held, after pool_has_free returned true. */
void pool_take_locked(struct ldma_pool *pool, enum ldma_pool_class class,
		      struct ldma_pool_buffer *ret);

/* Called with the lock held: gives free buffers to waiters, and adds these waiters to the list. */
void pool_serve_waiters(struct ldma_pool *pool, struct ldma_pool_waiter **served);

/* Called with the lock held: ends all waits with -ESHUTDOWN, and adds the waiters to the list. */
void pool_fail_waiters(struct ldma_pool *pool, struct ldma_pool_waiter **served);

/* Called without the lock: calls complete of each waiter in the list. */
void pool_complete(struct ldma_pool_waiter *served, void *context);

/* Called with the lock held, when the owner should look. Returns true if call_owner is to be called once the lock is
 * free. */
static inline bool pool_begin_call(struct ldma_pool *pool)
{
	if (pool->is_calling)
		return false;
	__atomic_store_n(&pool->is_calling, true, __ATOMIC_RELAXED);
	return pool->config.call_owner;
}

#ifndef LDMA_NO_PROBES
#define X(name, text) extern unsigned short livedma_##text##_semaphore;
LDMA_POOL_EVENTS(X)
#undef X
#endif

/* Writes an event to the log and to the probe. Cold: without listeners it must not even cost registers. */
__attribute__((cold)) void pool_write_event(const struct ldma_pool *pool,
					    enum ldma_pool_event_kind kind, uint32_t shard,
					    uint32_t buffer, enum ldma_pool_class class,
					    uint64_t value);

/* Used with the lock held, so that events of a pool are in their order. */
#define POOL_EVENT(pool, KIND, probe, shard, buffer, class, value)                                 \
	do {                                                                                       \
		if (__builtin_expect(ldma_pool_log_has_reader((pool)->config.log), 0) ||           \
		    LDMA_PROBE_IS_ON(probe))                                                       \
			pool_write_event(pool, LDMA_POOL_EVENT_##KIND, shard, buffer, class,       \
					 value);                                                   \
	} while (0)

#endif
