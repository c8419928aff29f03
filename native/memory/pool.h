/* Pools: equal buffers cut from shards. A shard is one mapping of somebody else's (the owner's) with a map of what is free
 * in it. Taking finds a free buffer without walking full shards and prefers the fullest shard that has one, so that others
 * empty out and can be given back; returning finds it from its handle.
 *
 * Part of a pool may be kept back for control traffic: buffers for data never get so many that those for control could
 * not have `reserve` at the same time. Who finds no buffer may wait, first come first served, control before data.
 *
 * Any thread may call anything; no call waits for another but for a few instructions, and nothing is allocated per
 * buffer. Only the owner adds and retires shards. */
#ifndef LDMA_POOL_H
#define LDMA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "free_map.h"
#include "histogram.h"
#include "pool_log.h"

#define LDMA_POOL_ALIGN 64 /* of each buffer: no two share a cache line */
#define LDMA_POOL_SHARD_BUFFERS_MAX LDMA_FREE_MAP_MAX
#define LDMA_POOL_BUFFERS_MAX (1u << 30)

enum ldma_pool_class { LDMA_POOL_DATA, LDMA_POOL_CONTROL, LDMA_POOL_CLASSES };

struct ldma_pool;

struct ldma_pool_config {
	uint32_t number;           /* tells pools apart in events */
	uint32_t buffer_bytes;     /* at least 1 */
	uint32_t shard_buffers;    /* the most that a shard has; at least 1 */
	uint32_t reserve;          /* buffers kept back for control */
	uint32_t minimum, maximum; /* of buffers; maximum 0: LDMA_POOL_BUFFERS_MAX */
	uint64_t (*now_ns)(void);  /* only called when somebody waits or reads events */
	void (*call_owner)(
		void *owner); /* see ldma_pool_is_calling; NULL: the owner looks by itself */
	void *owner;
	struct ldma_pool_log *log; /* NULL: no events */
};

/* A mapping, of ldma_pool_stride(pool) bytes for each buffer. */
struct ldma_pool_shard {
	uint8_t *memory; /* this and va are multiples of LDMA_POOL_ALIGN */
	uint64_t va;
	uint32_t lkey, rkey;
	uint32_t buffers;
};

struct ldma_pool_buffer {
	uint8_t *memory;
	uint64_t va;
	uint64_t handle; /* never 0, and another one each time that the buffer is taken */
	uint32_t lkey, rkey;
};

/* One who waits; the caller's memory, and the pool's until complete is called. */
struct ldma_pool_waiter {
	/* Called once, by whoever returned a buffer, added a shard or closed the pool, and free to call the pool. */
	void (*complete)(struct ldma_pool_waiter *waiter);
	int result;                     /* 0, -ECANCELED or -ESHUTDOWN; -EINPROGRESS before */
	struct ldma_pool_buffer buffer; /* if result is 0 */
	uint64_t waited_ns;
	/* the pool's */
	struct ldma_pool_waiter *next, *previous;
	uint64_t since_ns;
	uint8_t class;
	bool is_queued;
};

struct ldma_pool_stats {
	uint32_t shards, idle_shards; /* idle: none of its buffers is taken */
	uint32_t buffers, free;
	uint32_t taken[LDMA_POOL_CLASSES], waiting[LDMA_POOL_CLASSES];
	uint64_t oldest_ns[LDMA_POOL_CLASSES]; /* how long the first in the queue has waited */
	uint64_t takes[LDMA_POOL_CLASSES], gave_up[LDMA_POOL_CLASSES];
	uint64_t returns;
	uint64_t refused; /* returns of what is not taken: twice, foreign, or of a closed pool */
	uint64_t shards_added, shards_removed;
};

/* 0, -EINVAL or -ENOMEM. It has no shard yet. */
int ldma_pool_create(const struct ldma_pool_config *config, struct ldma_pool **ret);

/* Ends it in any state: who waits gets -ESHUTDOWN, all shards are the owner's again, returns of what was taken are refused
 * and counted. May be called again; every other call stays valid, and finds nothing. */
void ldma_pool_close(struct ldma_pool *pool);

/* Closes it and frees it: nobody may use it any more. NULL is accepted. */
void ldma_pool_destroy(struct ldma_pool *pool);

/* 0, -EAGAIN (none is free for the class) or -ESHUTDOWN. */
int ldma_pool_take(struct ldma_pool *pool, enum ldma_pool_class class,
		   struct ldma_pool_buffer *ret);

/* 0, or -EINVAL: the handle is none of a buffer that is taken; counted, and nothing else happened. */
int ldma_pool_return(struct ldma_pool *pool, uint64_t handle);

/* 0 (a buffer was free and is in waiter->buffer; complete is not called), -EINPROGRESS (complete will be) or -ESHUTDOWN.
 * The caller has set waiter->complete. */
int ldma_pool_wait(struct ldma_pool *pool, enum ldma_pool_class class,
		   struct ldma_pool_waiter *waiter);

/* 0: it waits no more, and complete is not called. -EALREADY: complete was called, is being called, or will be at once, and
 * a buffer that it got is the caller's. */
int ldma_pool_cancel(struct ldma_pool *pool, struct ldma_pool_waiter *waiter);

/* Bytes from one buffer to the next. */
uint64_t ldma_pool_stride(const struct ldma_pool *pool);

/* The number of the shard that a buffer which is taken is in. */
uint32_t ldma_pool_shard_of(const struct ldma_pool *pool, uint64_t handle);

/* From now on. If there are more buffers than maximum (0: LDMA_POOL_BUFFERS_MAX), no more than that are given out, and
 * shards go as they become idle; if there are fewer than minimum, the owner adds some. 0 or -EINVAL. */
int ldma_pool_set_bounds(struct ldma_pool *pool, uint32_t minimum, uint32_t maximum);

/* How many buffers the next shard may have; 0: the pool may not grow. */
uint32_t ldma_pool_room(struct ldma_pool *pool);

/* Whether it has less than its minimum and reserve. */
bool ldma_pool_is_short(struct ldma_pool *pool);

/* Those who wait get its buffers first. 0 and its number, or -EINVAL, -ENOSPC (more than there is room for), -ENOMEM or
 * -ESHUTDOWN. */
int ldma_pool_add_shard(struct ldma_pool *pool, const struct ldma_pool_shard *shard, uint32_t *ret);

/* Takes out an idle shard, which is the owner's again, as long as more than keep_idle of them are there and minimum and
 * reserve stay whole. 0 and its number, or -EAGAIN. */
int ldma_pool_retire_shard(struct ldma_pool *pool, uint32_t keep_idle, uint32_t *ret);

/* Whether it calls for its owner: two shards are idle, so one may go (the other stays, or taking and returning at the edge
 * would map and unmap each time), or one is idle and there are more buffers than there may be; or somebody waits and there is room for a shard. call_owner was called, once. */
bool ldma_pool_is_calling(const struct ldma_pool *pool);

/* The owner came: from now on it may be called again. */
void ldma_pool_answer(struct ldma_pool *pool);

void ldma_pool_get_stats(struct ldma_pool *pool, struct ldma_pool_stats *ret);

/* A shard as it is now: where it is, and how many of its buffers are taken. */
struct ldma_pool_shard_use {
	uint64_t va;
	uint32_t buffers, taken;
};

/* Writes up to most of them; returns how many there are. */
uint32_t ldma_pool_get_shards(struct ldma_pool *pool, struct ldma_pool_shard_use *ret,
			      uint32_t most);

/* How long those who waited did so, whether or not they got a buffer. */
void ldma_pool_get_waits(struct ldma_pool *pool, enum ldma_pool_class class,
			 struct ldma_histogram *ret);

#endif
