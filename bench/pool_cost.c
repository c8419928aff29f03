/* What taking and returning a buffer costs, in ns a pair, one thread:
 *
 *   pool_cost        ->  "ours NS, malloc NS, freelist NS ns"
 *
 * Ours has a lock, tells a wrong return from a right one and keeps shards apart; malloc is what a program would use without
 * a pool; the freelist is the least there can be: two loads and two stores, no lock and no questions asked. `held` buffers
 * are taken all the time, and each pair returns one of them at random and takes another. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool.h"

enum { BUFFER = 4096, SHARD_BUFFERS = 16, SHARDS = 64, HELD = 512, PAIRS = 2000000 };

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Which of those that are held goes next: the same for all. */
static uint32_t next_victim(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 16 & (HELD - 1);
}

static double ours(uint8_t *memory)
{
	struct ldma_pool_config config = {
		.buffer_bytes = BUFFER, .shard_buffers = SHARD_BUFFERS, .now_ns = now_ns};
	struct ldma_pool_buffer buffer;
	static uint64_t held[HELD];
	struct ldma_pool *pool;
	uint32_t state = 1, number;
	uint64_t start_ns;

	if (ldma_pool_create(&config, &pool))
		exit(1);
	for (uint64_t i = 0; i < SHARDS; i++) {
		struct ldma_pool_shard shard = {.memory = memory + i * SHARD_BUFFERS * BUFFER,
						.va = i * SHARD_BUFFERS * BUFFER,
						.buffers = SHARD_BUFFERS};
		if (ldma_pool_add_shard(pool, &shard, &number))
			exit(1);
	}
	for (int i = 0; i < HELD; i++) {
		if (ldma_pool_take(pool, LDMA_POOL_DATA, &buffer))
			exit(1);
		held[i] = buffer.handle;
	}
	start_ns = now_ns();
	for (int i = 0; i < PAIRS; i++) {
		uint32_t victim = next_victim(&state);

		if (ldma_pool_return(pool, held[victim]) ||
		    ldma_pool_take(pool, LDMA_POOL_DATA, &buffer))
			exit(1);
		held[victim] = buffer.handle;
	}
	start_ns = now_ns() - start_ns;
	ldma_pool_destroy(pool);
	return (double)start_ns / PAIRS;
}

static double by_malloc(void)
{
	static void *volatile held[HELD];
	uint32_t state = 1;
	uint64_t start_ns;

	for (int i = 0; i < HELD; i++)
		held[i] = malloc(BUFFER);
	start_ns = now_ns();
	for (int i = 0; i < PAIRS; i++) {
		uint32_t victim = next_victim(&state);

		free(held[victim]);
		held[victim] = malloc(BUFFER);
	}
	start_ns = now_ns() - start_ns;
	for (int i = 0; i < HELD; i++)
		free(held[i]);
	return (double)start_ns / PAIRS;
}

static double by_freelist(void)
{
	static uint32_t next[SHARDS * SHARD_BUFFERS];
	static volatile uint32_t held[HELD];
	volatile uint32_t first = 0;
	uint32_t state = 1;
	uint64_t start_ns;

	for (uint32_t i = 0; i < SHARDS * SHARD_BUFFERS; i++)
		next[i] = i + 1;
	for (int i = 0; i < HELD; i++) {
		held[i] = first;
		first = next[first];
	}
	start_ns = now_ns();
	for (int i = 0; i < PAIRS; i++) {
		uint32_t victim = next_victim(&state);

		next[held[victim]] = first;
		first = held[victim];
		held[victim] = first;
		first = next[first];
	}
	return (double)(now_ns() - start_ns) / PAIRS;
}

int main(void)
{
	uint8_t *memory = aligned_alloc(4096, (size_t)SHARDS * SHARD_BUFFERS * BUFFER);
	double pool_ns, malloc_ns, freelist_ns;

	if (!memory)
		return 1;
	pool_ns = ours(memory);
	malloc_ns = by_malloc();
	freelist_ns = by_freelist();
	printf("ours %.1f, malloc %.1f, freelist %.1f ns\n", pool_ns, malloc_ns, freelist_ns);
	free(memory);
	return 0;
}
