/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device and the reader of a tap share: memory with a ring, and the way in which they meet.
 *
 * The reader makes the memory, and pays for it: a memfd that cannot shrink; its first page is a struct ldma_tap_shared,
 * the rest is the ring. The reader asks the device for a tap over a Unix socket whose abstract name is the device's
 * address. Where there is no device yet, it listens under a name of its own, where a device that opens looks first.
 * Whichever side called, the reader then sends its request with the memory, and the device replies. The end of the
 * connection is the end of the tap.
 *
 * The ring holds struct ldma_record, each followed by its packet from the IP header on; each starts at a multiple of 8.
 * Positions only grow; their lowest bits are the place in the ring. Neither side trusts what the other side can
 * write. */
#ifndef LDMA_TAP_RING_H
#define LDMA_TAP_RING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "bpf/capture_config.h"
#include "bpf/record.h"
#include "port/address.h"

#define LDMA_TAPS 4 /* at one device, and readers that wait for one */
#define LDMA_TAP_VERSION 1
#define LDMA_TAP_RING_MAX (1u << 30)

struct ldma_tap_shared {
	uint64_t consumer; /* the reader writes it: up to here it has read */
	uint32_t sleeps;   /* the reader writes it: it is to be woken */
	uint8_t apart[52];
	uint64_t producer; /* the device writes it: up to here there are records */
	uint8_t apart_too[56];
	struct ldma_capture_counters counters;
};

struct ldma_tap_request {
	uint32_t version;
	uint32_t directions; /* bits 1 << LDMA_RECORD_RX, _TX */
	uint64_t ring_bytes; /* a power of two of at least a page */
	struct ldma_capture_config config;
};

/* The first reply answers the request; those that follow wake a reader that sleeps. */
struct ldma_tap_reply {
	int32_t error; /* 0 or a negative errno */
};

struct ldma_tap_memory {
	struct ldma_tap_shared *shared; /* NULL: not mapped */
	uint8_t *ring;                  /* mapped twice in a row: no record wraps */
	uint64_t ring_bytes;
};

static inline uint64_t ldma_tap_slot_bytes(uint32_t captured)
{
	return (sizeof(struct ldma_record) + captured + UINT64_C(7)) & ~UINT64_C(7);
}

/* Returns a descriptor of memory for a ring of that size, all of it allocated, or a negative errno. */
int ldma_tap_memory_create(uint64_t ring_bytes);

/* Maps the memory behind a descriptor that another process sent. Returns 0 or a negative errno; -EINVAL: it is not such
 * memory, and might vanish while in use. */
int ldma_tap_memory_map(int fd, uint64_t ring_bytes, struct ldma_tap_memory *ret);
void ldma_tap_memory_unmap(struct ldma_tap_memory *memory);

#define LDMA_TAP_DEVICE (-1)
/* Writes the abstract name of the device (LDMA_TAP_DEVICE), or of one of the LDMA_TAPS readers that wait for it.
 * Returns its length. */
socklen_t ldma_tap_name(const struct ldma_address *address, int waiting, struct sockaddr_un *ret);

/* Returns the user at the other end, or (uid_t)-1. */
uid_t ldma_tap_peer(int fd);

/* Returns a connection to the name, or a negative errno: -ECONNREFUSED if no socket listens there. */
int ldma_tap_connect(const struct ldma_address *address, int waiting);

/* Returns a socket that listens at the name, or a negative errno: -EADDRINUSE if one listens there already. */
int ldma_tap_listen(const struct ldma_address *address, int waiting);

#endif
