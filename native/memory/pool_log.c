/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/pool_log.h"

#include <errno.h>
#include <stdlib.h>

const char *const ldma_pool_event_names[LDMA_POOL_EVENT_COUNT] = {
#define X(name, text) [LDMA_POOL_EVENT_##name] = #text,
	LDMA_POOL_EVENTS(X)
#undef X
};

static void set_reader(struct ldma_pool_log *log, bool has_reader)
{
	__atomic_store_n(&log->has_reader, has_reader, __ATOMIC_RELAXED);
}

int ldma_pool_log_attach(struct ldma_pool_log *log, uint32_t capacity)
{
	struct ldma_pool_event *ring;
	uint32_t size = 1;
	int result = -EBUSY;

	while (size < capacity && size < 1u << 31)
		size *= 2;
	ring = malloc(size * sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	pthread_mutex_lock(&log->lock);
	if (!log->ring) {
		log->ring = ring;
		log->mask = size - 1;
		log->head = log->tail = 0;
		log->lost = 0;
		set_reader(log, true);
		ring = NULL;
		result = 0;
	}
	pthread_mutex_unlock(&log->lock);
	free(ring);
	return result;
}

void ldma_pool_log_detach(struct ldma_pool_log *log)
{
	struct ldma_pool_event *ring;

	pthread_mutex_lock(&log->lock);
	ring = log->ring;
	log->ring = NULL;
	set_reader(log, false);
	pthread_mutex_unlock(&log->lock);
	free(ring);
}

void ldma_pool_log_add(struct ldma_pool_log *log, const struct ldma_pool_event *event)
{
	pthread_mutex_lock(&log->lock);
	if (!log->ring)
		; /* the reader has gone meanwhile */
	else if (log->tail - log->head > log->mask)
		log->lost++;
	else
		log->ring[log->tail++ & log->mask] = *event;
	pthread_mutex_unlock(&log->lock);
}

uint32_t ldma_pool_log_read(struct ldma_pool_log *log, struct ldma_pool_event *ret, uint32_t count,
			    uint64_t *lost)
{
	uint32_t read = 0;

	pthread_mutex_lock(&log->lock);
	while (log->ring && read < count && log->head != log->tail)
		ret[read++] = log->ring[log->head++ & log->mask];
	*lost = log->lost;
	pthread_mutex_unlock(&log->lock);
	return read;
}
