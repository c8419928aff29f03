/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/batch.h"

#include <stdlib.h>
#include <string.h>

struct ldma_batch *ldma_batch_create(uint32_t capacity, size_t bytes_size)
{
	struct ldma_batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	batch->packets = calloc(capacity, sizeof(*batch->packets));
	batch->bytes = malloc(bytes_size ? bytes_size : 1);
	if (!batch->packets || !batch->bytes) {
		ldma_batch_destroy(batch);
		return NULL;
	}
	batch->capacity = capacity;
	batch->bytes_size = bytes_size;
	return batch;
}

void ldma_batch_destroy(struct ldma_batch *batch)
{
	if (!batch)
		return;
	free(batch->packets);
	free(batch->bytes);
	free(batch);
}

void ldma_batch_reset(struct ldma_batch *batch)
{
	batch->count = 0;
	batch->bytes_used = 0;
	batch->other = 0;
}

void ldma_batch_add(struct ldma_batch *batch, uint32_t link, uint64_t time_ns, uint8_t direction,
		    const uint8_t *frame, uint32_t captured, uint32_t length)
{
	struct ldma_packet *packet = &batch->packets[batch->count];

	if (!ldma_packet_decode(link, frame, captured, length, packet)) {
		batch->other++;
		return;
	}
	packet->time_ns = time_ns;
	packet->direction = direction;
	batch->count++;
}

bool ldma_batch_add_copy(struct ldma_batch *batch, uint32_t link, uint64_t time_ns,
			 uint8_t direction, const uint8_t *frame, uint32_t captured,
			 uint32_t length)
{
	uint8_t *copy = batch->bytes + batch->bytes_used;
	uint32_t before = batch->count;

	if (batch->count == batch->capacity || captured > batch->bytes_size - batch->bytes_used)
		return false;
	memcpy(copy, frame, captured);
	ldma_batch_add(batch, link, time_ns, direction, copy, captured, length);
	if (batch->count != before)
		batch->bytes_used += captured;
	return true;
}
