/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes a pool's events to the log and the probes; in a file of its own so that each probe is in one place. */
#include "memory/pool_internal.h"

#define X(name, text) LDMA_PROBE_DEFINE(text);
LDMA_POOL_EVENTS(X)
#undef X

void pool_write_event(const struct ldma_pool *pool, enum ldma_pool_event_kind kind, uint32_t shard,
		      uint32_t buffer, enum ldma_pool_class class, uint64_t value)
{
	const struct ldma_pool_config *config = &pool->config;

	if (ldma_pool_log_has_reader(config->log)) {
		const struct ldma_pool_event event = {
			.time_ns = config->now_ns(),
			.value = value,
			.pool = config->number,
			.shard = shard,
			.buffer = buffer,
			.kind = (uint8_t)kind,
			.is_control = class == LDMA_POOL_CONTROL,
		};

		ldma_pool_log_add(config->log, &event);
	}
	switch (kind) {
	case LDMA_POOL_EVENT_POOL_CREATE:
		LDMA_PROBE(pool_create, config->number, config->buffer_bytes, config->shard_buffers,
			   config->reserve);
		break;
	case LDMA_POOL_EVENT_POOL_DESTROY:
		LDMA_PROBE(pool_destroy, config->number, (uint32_t)value);
		break;
	case LDMA_POOL_EVENT_SHARD_NEW:
		LDMA_PROBE(shard_new, config->number, shard, (uint32_t)value,
			   pool->shards[shard]->va);
		break;
	case LDMA_POOL_EVENT_SHARD_FREE:
		LDMA_PROBE(shard_free, config->number, shard, (uint32_t)value);
		break;
	case LDMA_POOL_EVENT_BUFFER_TAKE:
		LDMA_PROBE(buffer_take, config->number, shard, buffer, (uint32_t)class);
		break;
	case LDMA_POOL_EVENT_BUFFER_RETURN:
		LDMA_PROBE(buffer_return, config->number, shard, buffer, (uint32_t)class);
		break;
	case LDMA_POOL_EVENT_BUFFER_WAIT:
		LDMA_PROBE(buffer_wait, config->number, shard, buffer, (uint32_t)class, value);
		break;
	case LDMA_POOL_EVENT_COUNT:
		break;
	}
}
