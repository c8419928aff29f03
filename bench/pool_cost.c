/* SPDX-License-Identifier: BSD-2-Clause */
/* What taking and returning a buffer costs, in ns a pair, one thread: a library, of which bench/pool.py loads two builds.
 *
 * Ours has a lock, tells a wrong return from a right one and keeps shards apart; malloc is what a program would use without
 * a pool; the freelist is the least there can be: two loads and two stores, no lock and no questions asked. HELD buffers are
 * taken all the time, and each pair returns one of them at random and takes another. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "memory/pool.h"

enum { BUFFER = 4096, SHARD_BUFFERS = 16, SHARDS = 64, HELD = 512, EVENTS = 8192 };

static struct ldma_pool_log events = LDMA_POOL_LOG_INIT;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Which of those that are held goes next: the same for all. */
static uint32_t next_victim(void)
{
	static uint32_t state = 1;

	state = state * 1664525 + 1013904223;
	return state >> 16 & (HELD - 1);
}

static uint64_t take(struct ldma_pool *pool)
{
	struct ldma_pool_buffer buffer;

	if (ldma_pool_take(pool, LDMA_POOL_DATA, &buffer))
		abort();
	return buffer.handle;
}

static struct ldma_pool *make_pool(uint64_t *held)
{
	struct ldma_pool_config config = {.buffer_bytes = BUFFER,
					  .shard_buffers = SHARD_BUFFERS,
					  .now_ns = now_ns,
					  .log = &events};
	uint8_t *memory = aligned_alloc(4096, (size_t)SHARDS * SHARD_BUFFERS * BUFFER);
	struct ldma_pool *pool;
	uint32_t number;

	if (!memory || ldma_pool_create(&config, &pool))
		abort();
	for (uint64_t i = 0; i < SHARDS; i++) {
		struct ldma_pool_shard shard = {.memory = memory + i * SHARD_BUFFERS * BUFFER,
						.va = i * SHARD_BUFFERS * BUFFER,
						.buffers = SHARD_BUFFERS};
		if (ldma_pool_add_shard(pool, &shard, &number))
			abort();
	}
	for (int i = 0; i < HELD; i++)
		held[i] = take(pool);
	return pool;
}

double ours_ns(uint32_t pairs)
{
	static uint64_t held[HELD];
	static struct ldma_pool *pool;
	uint64_t start_ns;

	if (!pool)
		pool = make_pool(held);
	start_ns = now_ns();
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t victim = next_victim();

		if (ldma_pool_return(pool, held[victim]))
			abort();
		held[victim] = take(pool);
	}
	return (double)(now_ns() - start_ns) / pairs;
}

/* The same while somebody reads the events. */
double read_ns(uint32_t pairs)
{
	static struct ldma_pool_event batch[EVENTS];
	double sum_ns = 0;
	uint64_t lost;

	if (ldma_pool_log_attach(&events, EVENTS))
		abort();
	for (uint32_t done = 0; done < pairs; done += EVENTS / 2) {
		sum_ns += ours_ns(EVENTS / 2) * (EVENTS / 2);
		if (ldma_pool_log_read(&events, batch, EVENTS, &lost) != EVENTS || lost)
			abort();
	}
	ldma_pool_log_detach(&events);
	return sum_ns / ((pairs + EVENTS / 2 - 1) / (EVENTS / 2) * (EVENTS / 2));
}

double malloc_ns(uint32_t pairs)
{
	static void *volatile held[HELD];
	uint64_t start_ns;

	for (int i = 0; i < HELD; i++)
		held[i] = malloc(BUFFER);
	start_ns = now_ns();
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t victim = next_victim();

		free(held[victim]);
		held[victim] = malloc(BUFFER);
	}
	start_ns = now_ns() - start_ns;
	for (int i = 0; i < HELD; i++)
		free(held[i]);
	return (double)start_ns / pairs;
}

double freelist_ns(uint32_t pairs)
{
	static uint32_t next[SHARDS * SHARD_BUFFERS];
	static volatile uint32_t held[HELD];
	volatile uint32_t first = 0;
	uint64_t start_ns;

	for (uint32_t i = 0; i < SHARDS * SHARD_BUFFERS; i++)
		next[i] = i + 1;
	for (int i = 0; i < HELD; i++) {
		held[i] = first;
		first = next[first];
	}
	start_ns = now_ns();
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t victim = next_victim();

		next[held[victim]] = first;
		first = held[victim];
		held[victim] = first;
		first = next[first];
	}
	return (double)(now_ns() - start_ns) / pairs;
}
