/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#define RELEASE_BYTES (32u << 10)

int ldma_ring_map(int map_fd, size_t size, struct ldma_ring *ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *consumer, *producer;
	int err;

	consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
	if (consumer == MAP_FAILED)
		return -errno;
	producer = mmap(NULL, page + 2 * size, PROT_READ, MAP_SHARED, map_fd, (off_t)page);
	if (producer == MAP_FAILED) {
		err = -errno;
		munmap(consumer, page);
		return err;
	}
	*ret = (struct ldma_ring){
		.consumer = consumer,
		.producer = producer,
		.data = (const uint8_t *)producer + page,
		.size = size,
		.page = page,
	};
	return 0;
}

void ldma_ring_unmap(struct ldma_ring *ring)
{
	if (!ring->consumer)
		return;
	munmap((void *)(uintptr_t)ring->producer, ring->page + 2 * ring->size);
	munmap(ring->consumer, ring->page);
	ring->consumer = NULL;
}

static unsigned long slot_bytes(uint32_t bytes)
{
	return (bytes + BPF_RINGBUF_HDR_SZ + 7ul) & ~7ul;
}

const void *ldma_ring_peek(struct ldma_ring *ring, uint32_t *ret_bytes)
{
	while (ring->at < __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE)) {
		const uint8_t *slot = ring->data + (ring->at & (ring->size - 1));
		uint32_t header = __atomic_load_n((const uint32_t *)slot, __ATOMIC_ACQUIRE);
		uint32_t bytes = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (header & BPF_RINGBUF_BUSY_BIT)
			return NULL;
		if (!(header & BPF_RINGBUF_DISCARD_BIT)) {
			*ret_bytes = bytes;
			return slot + BPF_RINGBUF_HDR_SZ;
		}
		ldma_ring_advance(ring, bytes);
	}
	return NULL;
}

void ldma_ring_advance(struct ldma_ring *ring, uint32_t bytes)
{
	ring->at += slot_bytes(bytes);
	if (ring->at - ring->released >= RELEASE_BYTES)
		ldma_ring_release(ring);
}

void ldma_ring_release(struct ldma_ring *ring)
{
	if (ring->at == ring->released)
		return;
	ring->released = ring->at;
	__atomic_store_n(ring->consumer, ring->at, __ATOMIC_RELEASE);
}
