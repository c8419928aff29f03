/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/mapped.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/monotonic.h"

#define PAGE 4096u
#define MADV_FILL 23 /* MADV_POPULATE_WRITE: the C library's headers may be too old to have it */

/* What is timed once is computation alone: other programs that take the processor meanwhile do not count. */
static uint64_t spent_ns(void)
{
	struct timespec spent;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
	return (uint64_t)spent.tv_sec * 1000000000 + (uint64_t)spent.tv_nsec;
}

uint8_t *ldma_mapped_memory(const struct ldma_mapped *mapped, uint64_t va)
{
	uint64_t offset = va - mapped->window.va, size = mapped->config.piece_bytes;

	return mapped->memory + (mapped->length / size - 1 - offset / size) * size + offset % size;
}

static int fill(struct ldma_mapped *mapped)
{
	void *memory = mmap(NULL, mapped->length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -ENOMEM;
	mapped->memory = memory;
	return madvise(memory, mapped->length, MADV_FILL) ? -ENOMEM : 0;
}

static int link_range(struct ldma_mapped *mapped, uint64_t va, uint64_t length)
{
	uint64_t step = mapped->config.piece_bytes, offset = va - mapped->window.va;
	int result = 0;

	for (uint64_t done = 0; done < length && !result; done += step)
		result = ldma_window_link(&mapped->window, offset + done,
					  ldma_mapped_memory(mapped, va + done), step);
	if (!result)
		result = ldma_window_sync(&mapped->window, offset, length);
	mapped->mappings += !result;
	return result;
}

static int add_buffers(struct ldma_mapped *mapped, uint64_t va, uint64_t length)
{
	struct ldma_pool_shard shard = {
		.memory = ldma_mapped_memory(mapped, va),
		.va = va,
		.lkey = mapped->key,
		.rkey = mapped->key,
		.buffers = (uint32_t)(length / mapped->config.buffer_bytes),
	};
	uint32_t number;

	return ldma_pool_add_shard(mapped->pool, &shard, &number);
}

static int map(struct ldma_mapped *mapped)
{
	uint64_t step = mapped->config.mapping_bytes, va;
	int result = ldma_window_reserve(&mapped->window, mapped->iova, mapped->length, 12, 0);

	if (result)
		return result;
	result = ldma_iova_register_window(mapped->iova, mapped->pd, &mapped->window,
					   LDMA_ACCESS_LOCAL_WRITE, mapped->key);
	if (result) {
		ldma_window_free(&mapped->window);
		return result;
	}
	for (va = mapped->window.va; va < mapped->window.va + mapped->length; va += step) {
		if (!mapped->config.is_per_use)
			result = link_range(mapped, va, step);
		if (!result)
			result = add_buffers(mapped, va, step);
		if (result)
			return result;
	}
	return 0;
}

static bool fits(const struct ldma_mapped_config *config)
{
	return config->buffers && config->buffer_bytes && config->mapping_bytes &&
	       config->piece_bytes && config->buffer_bytes % PAGE == 0 &&
	       config->mapping_bytes % config->buffer_bytes == 0 &&
	       config->mapping_bytes / config->buffer_bytes <= LDMA_POOL_SHARD_BUFFERS_MAX &&
	       config->mapping_bytes % config->piece_bytes == 0 &&
	       config->piece_bytes % PAGE == 0 &&
	       (!config->is_per_use || config->piece_bytes == config->buffer_bytes);
}

static int make(struct ldma_mapped *mapped)
{
	const struct ldma_mapped_config *config = &mapped->config;
	uint64_t all = (uint64_t)config->buffers * config->buffer_bytes, began_ns, filled_ns;
	struct ldma_pool_config pool = {
		.buffer_bytes = config->buffer_bytes,
		.shard_buffers = (uint32_t)(config->mapping_bytes / config->buffer_bytes),
		.now_ns = ldma_now_ns,
	};
	int result;

	mapped->length =
		(all + config->mapping_bytes - 1) / config->mapping_bytes * config->mapping_bytes;
	mapped->posted = calloc(config->buffers, sizeof(*mapped->posted));
	began_ns = spent_ns();
	result = mapped->posted ? fill(mapped) : -ENOMEM;
	filled_ns = spent_ns();
	mapped->memory_ns = filled_ns - began_ns;
	if (!result)
		result = ldma_pool_create(&pool, &mapped->pool);
	if (!result)
		result = map(mapped);
	mapped->map_ns = spent_ns() - filled_ns;
	return result;
}

int ldma_mapped_create(struct ldma_iova *iova, struct ldma_pd *pd,
		       const struct ldma_mapped_config *config, uint32_t random_key,
		       struct ldma_mapped **ret)
{
	struct ldma_mapped *mapped;
	int result;

	if (!fits(config))
		return -EINVAL;
	mapped = calloc(1, sizeof(*mapped));
	if (!mapped)
		return -ENOMEM;
	mapped->config = *config;
	mapped->iova = iova;
	mapped->pd = pd;
	mapped->key = random_key;
	result = make(mapped);
	if (result)
		ldma_mapped_destroy(mapped);
	else
		*ret = mapped;
	return result;
}

/* Mappings go one by one, as they came. */
void ldma_mapped_unmap(struct ldma_mapped *mapped)
{
	uint64_t began_ns = spent_ns(), step = mapped->config.mapping_bytes;

	for (uint64_t at = 0; at < mapped->length && !mapped->config.is_per_use; at += step)
		ldma_window_unlink(&mapped->window, at, step);
	ldma_iova_deregister(mapped->iova, mapped->key);
	ldma_window_close(&mapped->window);
	ldma_pool_close(mapped->pool);
	mapped->unmap_ns = spent_ns() - began_ns;
}

void ldma_mapped_destroy(struct ldma_mapped *mapped)
{
	if (!mapped)
		return;
	if (mapped->window.iova)
		ldma_mapped_unmap(mapped);
	ldma_pool_destroy(mapped->pool);
	if (mapped->memory)
		munmap(mapped->memory, mapped->length);
	free(mapped->posted);
	free(mapped);
}

int ldma_mapped_take(struct ldma_mapped *mapped, struct ldma_pool_buffer *ret)
{
	int result = ldma_pool_take(mapped->pool, LDMA_POOL_DATA, ret);

	if (result || !mapped->config.is_per_use)
		return result;
	result = link_range(mapped, ret->va, mapped->config.buffer_bytes);
	if (result)
		ldma_pool_return(mapped->pool, ret->handle);
	return result;
}

int ldma_mapped_return(struct ldma_mapped *mapped, uint64_t handle, uint64_t va)
{
	int result = 0;

	if (mapped->config.is_per_use)
		result = ldma_window_unlink(&mapped->window, va - mapped->window.va,
					    mapped->config.buffer_bytes);
	return result ? result : ldma_pool_return(mapped->pool, handle);
}

/* Posts buffers behind those that are posted until there are as many as wanted. */
static int post(struct ldma_mapped *mapped, uint32_t wanted)
{
	int result = 0;

	for (; mapped->posted_count < wanted && !result; mapped->posted_count += !result) {
		uint64_t place = (uint64_t)mapped->oldest + mapped->posted_count;

		result = ldma_mapped_take(mapped, &mapped->posted[place % mapped->config.buffers]);
	}
	return result;
}

static int receive_batch(struct ldma_mapped *mapped, const void *data, uint32_t length,
			 uint32_t batch, struct ldma_mapped_times *ret)
{
	uint32_t buffers = mapped->config.buffers, first = mapped->oldest;
	uint64_t began_ns = ldma_now_ns(), written_ns;
	int result = 0;

	for (uint32_t i = 0; i < batch; i++) {
		const struct ldma_pool_buffer *buffer = &mapped->posted[(first + i) % buffers];

		if (ldma_iova_write(mapped->iova, mapped->pd, buffer->lkey, buffer->va, data,
				    length, LDMA_ACCESS_LOCAL_WRITE) != LDMA_IOVA_OK)
			return -EIO;
	}
	written_ns = ldma_now_ns();
	for (uint32_t i = 0; i < batch && !result; i++) {
		const struct ldma_pool_buffer *buffer = &mapped->posted[(first + i) % buffers];

		result = ldma_mapped_return(mapped, buffer->handle, buffer->va);
	}
	mapped->oldest = (first + batch) % buffers;
	mapped->posted_count -= batch;
	if (!result)
		result = post(mapped, buffers);
	ret->device_ns += written_ns - began_ns;
	ret->host_ns += ldma_now_ns() - written_ns;
	return result ? -EIO : 0;
}

int ldma_mapped_receive(struct ldma_mapped **connections, uint32_t count, const void *data,
			uint32_t length, uint64_t messages, struct ldma_mapped_times *ret)
{
	int result = 0;

	*ret = (struct ldma_mapped_times){0};
	for (uint32_t i = 0; i < count && !result; i++)
		result = post(connections[i], connections[i]->config.buffers);
	for (uint64_t done = 0, turn = 0; done < messages && !result; turn++) {
		struct ldma_mapped *mapped = connections[turn % count];
		uint64_t batch = messages - done;

		if (batch > LDMA_MAPPED_BATCH)
			batch = LDMA_MAPPED_BATCH;
		if (batch > mapped->config.buffers)
			batch = mapped->config.buffers;
		result = receive_batch(mapped, data, length, (uint32_t)batch, ret);
		done += batch;
	}
	return result;
}
