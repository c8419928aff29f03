/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool is a set of equal buffers cut from shards. A shard is one mapping, which belongs to the pool's owner, with a
 * map of its free buffers. Taking finds a free buffer without walking full shards and prefers the fullest shard that
 * has one, so that others empty out and can go back to the owner; returning finds the buffer from its handle.
 *
 * The pool may keep a part back for control traffic: data never takes so many buffers that control could not have
 * `reserve` at the same time. A caller that finds no buffer may wait: first come, first served, control before data.
 *
 * Any thread may call anything; no call waits for another for more than a few instructions, and nothing is allocated
 * per buffer. Only the owner adds and retires shards. */
#ifndef LDMA_POOL_H
#define LDMA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"
#include "memory/free_map.h"
#include "memory/pool_log.h"

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
	uint64_t (*now_ns)(void);  /* called only while there are waiters or a reader of events */
	void (*call_owner)(
		void *owner); /* see ldma_pool_is_calling; NULL: the owner looks by itself */
	void *owner;
	struct ldma_pool_log *log; /* NULL: no events */
};

/* The mapping of a shard, with ldma_pool_stride(pool) bytes for each buffer. */
struct ldma_pool_shard {
	uint8_t *memory; /* this and va are multiples of LDMA_POOL_ALIGN */
	uint64_t va;
	uint32_t lkey, rkey;
	uint32_t buffers;
};

struct ldma_pool_buffer {
	uint8_t *memory;
	uint64_t va;
	uint64_t handle; /* never 0, and a different one each time that the buffer is taken */
	uint32_t lkey, rkey;
};

/* One waiting caller. The memory is the caller's; the pool uses it until complete is called. */
struct ldma_pool_waiter {
	/* Called once, on the thread that returned a buffer, added a shard, set the bounds or closed the pool. It may
	 * call the pool. context: of ldma_pool_return_with; NULL: another call brought the buffer. */
	void (*complete)(struct ldma_pool_waiter *waiter, void *context);
	int result;                     /* 0, -ECANCELED or -ESHUTDOWN; -EINPROGRESS before */
	struct ldma_pool_buffer buffer; /* if result is 0 */
	uint64_t waited_ns;
	/* used by the pool */
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
	uint64_t refused; /* returns of no taken buffer: twice, foreign, or of a closed pool */
	uint64_t shards_added, shards_removed;
};

/* Makes a pool without shards. Returns 0, -EINVAL or -ENOMEM. */
int ldma_pool_create(const struct ldma_pool_config *config, struct ldma_pool **ret);

/* Ends the pool in any state: waiters get -ESHUTDOWN, all shards belong to the owner again, and returns of buffers that
 * were taken are refused and counted. A second call has no effect; every other call stays valid, and finds nothing. */
void ldma_pool_close(struct ldma_pool *pool);

/* Closes the pool and frees it. No thread may use it any more. NULL is accepted. */
void ldma_pool_destroy(struct ldma_pool *pool);

/* Takes a buffer. Returns 0, -EAGAIN (none is free for the class) or -ESHUTDOWN. */
int ldma_pool_take(struct ldma_pool *pool, enum ldma_pool_class class,
		   struct ldma_pool_buffer *ret);

/* Returns the buffer to the pool. The result is 0, or -EINVAL if the handle names no buffer that is taken; that is
 * counted and has no other effect. */
int ldma_pool_return(struct ldma_pool *pool, uint64_t handle);

/* Does the same, and hands context to those waiters that it serves: they run in the caller's thread. */
int ldma_pool_return_with(struct ldma_pool *pool, uint64_t handle, void *context);

/* Takes a buffer or waits for one. The caller has set waiter->complete. Returns 0 (a buffer was free and is in
 * waiter->buffer; complete is not called), -EINPROGRESS (complete will be called) or -ESHUTDOWN. */
int ldma_pool_wait(struct ldma_pool *pool, enum ldma_pool_class class,
		   struct ldma_pool_waiter *waiter);

/* Ends a wait. Returns 0: the waiter left the queue, and complete is not called; or -EALREADY: complete was called, is
 * being called or will be at once, and a buffer that the waiter got belongs to the caller. */
int ldma_pool_cancel(struct ldma_pool *pool, struct ldma_pool_waiter *waiter);

/* Returns the bytes from one buffer to the next. */
uint64_t ldma_pool_stride(const struct ldma_pool *pool);

/* Returns the number of the shard that holds this taken buffer. */
uint32_t ldma_pool_shard_of(const struct ldma_pool *pool, uint64_t handle);

/* Sets the bounds from now on. If there are more buffers than maximum (0: LDMA_POOL_BUFFERS_MAX), the pool gives out no
 * more than that, and shards may go as they become idle; if there are fewer than minimum, the owner has to add some.
 * Returns 0 or -EINVAL. */
int ldma_pool_set_bounds(struct ldma_pool *pool, uint32_t minimum, uint32_t maximum);

/* Returns how many buffers the next shard may have; 0: the pool may not grow. */
uint32_t ldma_pool_room(struct ldma_pool *pool);

/* Returns whether the pool has fewer buffers than its minimum or its reserve. */
bool ldma_pool_is_short(struct ldma_pool *pool);

/* Adds a shard; waiters get its buffers first. Returns 0 and the shard's number, or -EINVAL, -ENOSPC (more than there
 * is room for), -ENOMEM or -ESHUTDOWN. */
int ldma_pool_add_shard(struct ldma_pool *pool, const struct ldma_pool_shard *shard, uint32_t *ret);

/* Takes out an idle shard, which belongs to the owner again, if there are more than keep_idle of them and minimum and
 * reserve stay whole. Returns 0 and the shard's number, or -EAGAIN. */
int ldma_pool_retire_shard(struct ldma_pool *pool, uint32_t keep_idle, uint32_t *ret);

/* Returns whether the pool calls its owner. It does when a shard may go or is needed: two shards are idle (one stays,
 * or taking and returning at the edge would map and unmap each time); or one is idle and there are more buffers than
 * the maximum; or a caller waits and there is room for a shard. call_owner is called once for each such call. */
bool ldma_pool_is_calling(const struct ldma_pool *pool);

/* Ends the call, when the owner has come: from now on the pool may call again. */
void ldma_pool_answer(struct ldma_pool *pool);

void ldma_pool_get_stats(struct ldma_pool *pool, struct ldma_pool_stats *ret);

/* The address of a shard, and how many of its buffers are taken now. */
struct ldma_pool_shard_use {
	uint64_t va;
	uint32_t buffers, taken;
};

/* Writes up to `most` of the shards; returns how many there are. */
uint32_t ldma_pool_get_shards(struct ldma_pool *pool, struct ldma_pool_shard_use *ret,
			      uint32_t most);

/* Copies the histogram of the times that callers have waited, whether or not they got a buffer. */
void ldma_pool_get_waits(struct ldma_pool *pool, enum ldma_pool_class class,
			 struct ldma_histogram *ret);

#endif
