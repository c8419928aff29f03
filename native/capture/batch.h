/* SPDX-License-Identifier: BSD-2-Clause */
/* A batch of decoded packets: the unit that crosses into Python at once. A source (a file, a session, a tap's reader)
 * fills it; one thread at a time uses it. */
#ifndef LDMA_BATCH_H
#define LDMA_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"

/* The packets' frames lie in the batch's own bytes, or in a buffer that the source keeps until the batch is reset. */
struct ldma_batch {
	struct ldma_packet *packets;
	uint32_t count, capacity;
	uint8_t *bytes;
	size_t bytes_used, bytes_size;
	uint64_t other; /* frames seen since the reset that were not RoCE */
};

/* Returns a batch with room for `capacity` packets and bytes_size bytes of copied frames (may be 0), or NULL without
 * memory. */
struct ldma_batch *ldma_batch_create(uint32_t capacity, size_t bytes_size);
void ldma_batch_destroy(struct ldma_batch *batch); /* accepts NULL */
void ldma_batch_reset(struct ldma_batch *batch);

/* Decodes a frame that outlives the batch's use, without copying it. The batch must not be full. */
void ldma_batch_add(struct ldma_batch *batch, uint32_t link, uint64_t time_ns, uint8_t direction,
		    const uint8_t *frame, uint32_t captured, uint32_t length);

/* Decodes a frame that may go afterwards: it is copied if it is RoCE. Returns false, and does nothing, if either the
 * packets or the bytes are full. */
bool ldma_batch_add_copy(struct ldma_batch *batch, uint32_t link, uint64_t time_ns,
			 uint8_t direction, const uint8_t *frame, uint32_t captured,
			 uint32_t length);

#endif
