/* What a device and the reader of a tap on it share: memory with a ring, and how they meet.
 *
 * The reader makes the memory, and pays for it: a memfd that cannot shrink, its first page a struct ldma_tap_shared, the
 * rest the ring. It asks the device for a tap over a Unix socket whose abstract name is the device's address; where
 * there is no device yet it listens under a name of its own, where a device that opens looks first. Whoever called, the
 * reader then sends its request with the memory, and the device replies. The end of the connection is the end of the tap.
 *
 * In the ring there are struct ldma_record with their packets, from the IP header on; each starts at a multiple of 8.
 * Positions only grow; their lowest bits are the place. Neither side trusts what the other one can write. */
#ifndef LDMA_TAP_RING_H
#define LDMA_TAP_RING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "address.h"
#include "capture_config.h"
#include "record.h"

#define LDMA_TAPS 4 /* at one device, and readers that wait for one */
#define LDMA_TAP_VERSION 1
#define LDMA_TAP_RING_MAX (1u << 30)

struct ldma_tap_shared {
	uint64_t consumer; /* the reader's: up to here it has read */
	uint32_t sleeps;   /* it is to be woken */
	uint8_t apart[52];
	uint64_t producer; /* the device's: up to here there are records */
	uint8_t apart_too[56];
	struct ldma_capture_counters counters;
};

struct ldma_tap_request {
	uint32_t version;
	uint32_t directions; /* bits 1 << LDMA_RECORD_RX, _TX */
	uint64_t ring_bytes; /* a power of two of at least a page */
	struct ldma_capture_config config;
};

/* The first one answers the request; those that follow wake a reader that sleeps. */
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

/* A descriptor of memory for a ring of that size, all of it allocated; or a negative errno. */
int ldma_tap_memory_create(uint64_t ring_bytes);

/* Maps the memory behind a descriptor from anyone. -EINVAL: it is not such memory, and might vanish while in use. */
int ldma_tap_memory_map(int fd, uint64_t ring_bytes, struct ldma_tap_memory *ret);
void ldma_tap_memory_unmap(struct ldma_tap_memory *memory);

#define LDMA_TAP_DEVICE (-1)
/* The abstract name at which a device is found, or one of LDMA_TAPS readers that wait for it. Returns its length. */
socklen_t ldma_tap_name(const struct ldma_address *address, int waiting, struct sockaddr_un *ret);

/* The user at the other end, or (uid_t)-1. */
uid_t ldma_tap_peer(int fd);

/* A connection to the name, or a negative errno: -ECONNREFUSED if nobody listens there. */
int ldma_tap_connect(const struct ldma_address *address, int waiting);

/* Listens at the name; -EADDRINUSE if somebody does. */
int ldma_tap_listen(const struct ldma_address *address, int waiting);

#endif
