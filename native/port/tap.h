/* Taps: copies of the packets that a device receives and sends, for readers in other processes.
 *
 * A tap costs the packet path its copies and nothing else: what the ring has no room for is counted, and nobody is
 * waited for. What is needed to write (positions, counts, filters) is kept apart from the shared memory, so that a reader
 * can spoil only what it reads itself. */
#ifndef LDMA_TAP_H
#define LDMA_TAP_H

#include <stdbool.h>

#include "tap_ring.h"

struct ldma_tap {
	struct ldma_tap_memory memory;
	struct ldma_tap_request wanted;
	struct ldma_capture_counters counters;
	uint64_t head;    /* where the next record goes */
	uint64_t tail;    /* the reader's position as last believed: head - ring size at least */
	uint64_t woke_at; /* head, when the reader was last woken */
	int fd;           /* of the connection; not the tap's to close */
	bool has_news;
};

/* The taps of one device; whoever owns the device uses them. */
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

/* A tap as the reader at fd wants it, into the memory behind memory_fd. -EPROTO: another version; -EINVAL: what it
 * wants or brings is of no use. */
int ldma_tap_create(const struct ldma_tap_request *wanted, int memory_fd, int fd,
		    struct ldma_tap **ret);
void ldma_tap_destroy(struct ldma_tap *tap); /* accepts NULL */

/* The caller owns the device, of which there are fewer taps than LDMA_TAPS. */
void ldma_taps_add(struct ldma_taps *taps, struct ldma_tap *tap);
void ldma_taps_remove(struct ldma_taps *taps, struct ldma_tap *tap);

/* Copies the packet for each tap that wants it. */
void ldma_taps_packet(struct ldma_taps *taps, const struct ldma_tapped *packet);

/* Shows the readers what was copied; wakes those that sleep while much has gathered. */
void ldma_taps_publish(struct ldma_taps *taps);

#endif
