/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of pools share. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/pool.h"

#define BYTES 256

static inline struct ldma_pool *make_pool(struct ldma_pool_config config)
{
	struct ldma_pool *pool;

	if (!config.buffer_bytes)
		config.buffer_bytes = BYTES;
	assert(!ldma_pool_create(&config, &pool));
	return pool;
}

/* A shard over memory of its own, which the caller frees. */
static inline uint8_t *add_shard(struct ldma_pool *pool, uint32_t buffers, uint32_t *number)
{
	size_t size = (buffers * ldma_pool_stride(pool) + 4095) / 4096 * 4096;
	struct ldma_pool_shard shard = {.memory = aligned_alloc(4096, size),
					.va = 1u << 20,
					.lkey = 7,
					.rkey = 8,
					.buffers = buffers};

	assert(shard.memory && !ldma_pool_add_shard(pool, &shard, number));
	return shard.memory;
}

static inline struct ldma_pool_stats stats_of(struct ldma_pool *pool)
{
	struct ldma_pool_stats stats;

	ldma_pool_get_stats(pool, &stats);
	return stats;
}
