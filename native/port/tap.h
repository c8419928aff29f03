/* SPDX-License-Identifier: BSD-2-Clause */
/* A tap copies the packets that a device receives and sends for a reader in another process. The thread that owns the
 * device calls all of this, but for ldma_tap_create and ldma_tap_destroy.
 *
 * A tap costs the packet path its copies and nothing else: packets for which the ring has no room are counted, and the
 * device never waits for the reader. The device keeps what it needs to write (positions, counts, filters) apart from
 * the shared memory, so that a reader can spoil only what it reads itself. */
#ifndef LDMA_TAP_H
#define LDMA_TAP_H

#include <stdbool.h>

#include "port/tap_ring.h"

struct ldma_tap {
	struct ldma_tap_memory memory;
	struct ldma_tap_request wanted;
	struct ldma_capture_counters counters;
	uint64_t head;    /* where the next record goes */
	uint64_t tail;    /* the reader's position as last accepted: head - ring size at least */
	uint64_t woke_at; /* head, when the reader was last woken */
	int fd;           /* of the connection; the host closes it */
	bool has_news;
};

/* The taps of one device; the thread that owns the device uses them. */
struct ldma_taps {
	uint32_t count;
	struct ldma_tap *each[LDMA_TAPS];
};

/* One packet of the device, from its IP header to its ICRC. */
struct ldma_tapped {
	const uint8_t *l3;
	uint32_t length;
	uint64_t time_ns;
	uint16_t segment;  /* its place in its train */
	uint8_t direction; /* LDMA_RECORD_RX or _TX */
};

/* Makes a tap as the reader at fd wants it, with the memory behind memory_fd. Returns 0 or a negative errno: -EPROTO:
 * the reader has another version; -EINVAL: its request or its memory is not valid. */
int ldma_tap_create(const struct ldma_tap_request *wanted, int memory_fd, int fd,
		    struct ldma_tap **ret);
void ldma_tap_destroy(struct ldma_tap *tap); /* accepts NULL */

/* Add a tap to the device, which has fewer than LDMA_TAPS, or remove it. The caller owns the device. */
void ldma_taps_add(struct ldma_taps *taps, struct ldma_tap *tap);
void ldma_taps_remove(struct ldma_taps *taps, struct ldma_tap *tap);

/* Copies the packet for each tap that wants it. */
void ldma_taps_packet(struct ldma_taps *taps, const struct ldma_tapped *packet);

/* Shows the readers what was copied, and wakes readers that sleep once much has gathered. */
void ldma_taps_publish(struct ldma_taps *taps);

#endif
