/* SPDX-License-Identifier: BSD-2-Clause */
/* Receive buffers of one connection, mapped into one window in the way that is asked for: by a mapping for each
 * buffer, for each shard of several, for all at once, or for each use of a buffer. It is what the ways are compared
 * with, so they differ in nothing but their mappings: the same window, the same memory, the same pool, all in C.
 *
 * The memory of a connection is one range that is filled before anything is mapped. Its pieces lie there in the order
 * opposite to that of their addresses for the device: no two of them are one piece of memory, as no two allocations of
 * a server are.
 *
 * The thread that has the device to itself calls all of this. */
#ifndef LDMA_MAPPED_H
#define LDMA_MAPPED_H

#include "memory/iova.h"
#include "memory/pool.h"
#include "memory/window.h"

#define LDMA_MAPPED_BATCH 8 /* messages that a server handles at a time */

struct ldma_mapped_config {
	uint32_t buffers;
	uint32_t buffer_bytes;  /* whole pages */
	uint64_t mapping_bytes; /* of one mapping: whole buffers */
	uint64_t piece_bytes;   /* of a piece of its memory: whole pages, and a part of a mapping */
	bool is_per_use;        /* a buffer is mapped from its taking to its return */
};

struct ldma_mapped {
	struct ldma_mapped_config config;
	struct ldma_iova *iova;
	struct ldma_pd *pd;
	struct ldma_window window;
	struct ldma_pool *pool;
	uint8_t *memory;
	uint64_t length;   /* of the memory: whole mappings */
	uint64_t mappings; /* that were made so far */
	uint32_t key;
	struct ldma_pool_buffer *posted; /* a ring, as a receive queue is */
	uint32_t posted_count, oldest;
	/* Processor time of the calling thread: to find the memory and fill it with zeros; to reserve addresses, make
	 * the mappings and put the buffers into the pool; to undo that (ldma_mapped_unmap). */
	uint64_t memory_ns, map_ns, unmap_ns;
};

/* Makes and maps everything. random_key: as for ldma_iova_register. Returns 0, or -EINVAL (sizes that do not fit each
 * other), -ENOSPC (the device has no such range of addresses), -EEXIST (the key is taken) or -ENOMEM. */
int ldma_mapped_create(struct ldma_iova *iova, struct ldma_pd *pd,
		       const struct ldma_mapped_config *config, uint32_t random_key,
		       struct ldma_mapped **ret);

/* Takes all mappings out. It can be called once, when nothing uses the buffers any more. */
void ldma_mapped_unmap(struct ldma_mapped *mapped);

/* Unmaps what is mapped, and frees all. NULL is accepted. */
void ldma_mapped_destroy(struct ldma_mapped *mapped);

/* Take a buffer that the device can use, and return it. `memory` of the buffer is not set: ldma_mapped_memory finds it.
 * Errors as ldma_pool_take and ldma_pool_return. */
int ldma_mapped_take(struct ldma_mapped *mapped, struct ldma_pool_buffer *ret);
int ldma_mapped_return(struct ldma_mapped *mapped, uint64_t handle, uint64_t va);

/* Returns this process's address of a byte of the device's. */
uint8_t *ldma_mapped_memory(const struct ldma_mapped *mapped, uint64_t va);

/* What ldma_mapped_receive measured. */
struct ldma_mapped_times {
	uint64_t host_ns;   /* buffers returned, taken and posted */
	uint64_t device_ns; /* messages written to them */
};

/* Receives `messages` of length bytes on all connections in turn, a batch each, without a wire: the device writes to
 * the buffers that were posted first, the host returns them and posts others. All buffers are posted before the first
 * message. Returns 0, or -EIO if a buffer was not usable. */
int ldma_mapped_receive(struct ldma_mapped **connections, uint32_t count, const void *data,
			uint32_t length, uint64_t messages, struct ldma_mapped_times *ret);

#endif
