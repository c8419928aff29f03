/* SPDX-License-Identifier: BSD-2-Clause */
/* The consumer's side of a BPF ring buffer, record by record.
 *
 * libbpf's own consumer gives the space of each record back at once, which costs the producer a cache miss per packet,
 * and it cannot leave a record for later. This consumer gives back many records at once, and can. One thread uses a
 * ring.
 */
#ifndef LDMA_RING_H
#define LDMA_RING_H

#include <stddef.h>
#include <stdint.h>

struct ldma_ring {
	unsigned long *consumer; /* its position, shared with the kernel */
	const unsigned long *producer;
	const uint8_t *data; /* mapped twice in a row: no record wraps */
	size_t size;
	unsigned long at;       /* the next record */
	unsigned long released; /* up to here the kernel has the space back */
	size_t page;
};

/* Maps the ring of `size` bytes behind map_fd. Returns 0 or -errno. */
int ldma_ring_map(int map_fd, size_t size, struct ldma_ring *ret);
void ldma_ring_unmap(struct ldma_ring *ring);

/* Returns the next complete record, with its length in *ret_bytes, or NULL. It stays the next one until
 * ldma_ring_advance(). */
const void *ldma_ring_peek(struct ldma_ring *ring, uint32_t *ret_bytes);
void ldma_ring_advance(struct ldma_ring *ring, uint32_t bytes);

/* Gives the space of the records that were advanced over back to the producer. */
void ldma_ring_release(struct ldma_ring *ring);

#endif
