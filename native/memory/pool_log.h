/* SPDX-License-Identifier: BSD-2-Clause */
/* The log of a process's pools: their events as records in a ring that one reader empties in batches. Without a reader
 * there is no ring, and an event costs one comparison. Any thread may call anything. */
#ifndef LDMA_POOL_LOG_H
#define LDMA_POOL_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The events, and what their value is. The USDT probes have the same names. */
#define LDMA_POOL_EVENTS(X)                                                                        \
	X(POOL_CREATE, pool_create)     /* bytes of a buffer */                                    \
	X(POOL_DESTROY, pool_destroy)   /* buffers that were still taken */                        \
	X(SHARD_NEW, shard_new)         /* its buffers */                                          \
	X(SHARD_FREE, shard_free)       /* its buffers */                                          \
	X(BUFFER_TAKE, buffer_take)     /* 0 */                                                    \
	X(BUFFER_RETURN, buffer_return) /* 0 */                                                    \
	X(BUFFER_WAIT, buffer_wait)     /* how long, in ns; LDMA_POOL_NONE: it gave up */

enum ldma_pool_event_kind {
#define X(name, text) LDMA_POOL_EVENT_##name,
	LDMA_POOL_EVENTS(X)
#undef X
		LDMA_POOL_EVENT_COUNT
};

#define LDMA_POOL_NONE UINT32_MAX

struct ldma_pool_event {
	uint64_t time_ns;
	uint64_t value;
	uint32_t pool;
	uint32_t shard, buffer; /* the buffer's place in its shard; LDMA_POOL_NONE: not about one */
	uint8_t kind;
	uint8_t is_control;
	uint16_t reserved;
};
_Static_assert(sizeof(struct ldma_pool_event) == 32, "read from Python as columns");

struct ldma_pool_log {
	pthread_mutex_t lock;
	struct ldma_pool_event *ring; /* NULL: there is no reader */
	uint32_t mask, head, tail;
	uint64_t lost;
	bool has_reader; /* read without the lock: a hint */
};

#define LDMA_POOL_LOG_INIT {.lock = PTHREAD_MUTEX_INITIALIZER}

static inline bool ldma_pool_log_has_reader(const struct ldma_pool_log *log)
{
	return log && __atomic_load_n(&log->has_reader, __ATOMIC_RELAXED);
}

/* Starts a ring for the reader that calls; capacity is rounded up to a power of two. Returns 0, -EBUSY (there is a
 * reader) or -ENOMEM. */
int ldma_pool_log_attach(struct ldma_pool_log *log, uint32_t capacity);

/* Ends the ring, and drops what was not read. A second call has no effect. */
void ldma_pool_log_detach(struct ldma_pool_log *log);

/* Adds an event. It is lost and counted if the ring is full. */
void ldma_pool_log_add(struct ldma_pool_log *log, const struct ldma_pool_event *event);

/* Takes up to count events, the oldest first; returns how many. *lost is how many were lost since the reader came. */
uint32_t ldma_pool_log_read(struct ldma_pool_log *log, struct ldma_pool_event *ret, uint32_t count,
			    uint64_t *lost);

extern const char *const ldma_pool_event_names[LDMA_POOL_EVENT_COUNT];

#endif
