/* SPDX-License-Identifier: BSD-2-Clause */
/* The reader's side of a tap: it receives the packets of a livedma device in any process of the same user. One thread
 * at a time uses a reader. */
#ifndef LDMA_TAP_READER_H
#define LDMA_TAP_READER_H

#include <stdbool.h>

#include "capture/batch.h"
#include "port/tap_ring.h"

#define LDMA_TAP_RING_BYTES (16u << 20) /* what ring_bytes 0 stands for */

struct ldma_tap_options {
	struct ldma_address address;       /* the device's */
	struct ldma_capture_config config; /* wake_bytes is not used */
	uint32_t ring_bytes;               /* a power of two of at least a page */
	bool rx, tx;
};

struct ldma_tap_reader;

/* Makes a reader with its ring. Returns 0 or a negative errno. */
int ldma_tap_reader_open(const struct ldma_tap_options *options, struct ldma_tap_reader **ret);
void ldma_tap_reader_close(struct ldma_tap_reader *reader); /* detaches; accepts NULL */

/* Asks the device for a tap; if there is no device, waits for it for timeout_ms. A device that opens while the reader
 * is between two such calls waits a little for the next one. Returns 1: attached; 0: there is no device yet, or a
 * signal came; or a negative errno: -EACCES: the device is another user's; -EPERM: it refuses this user; -EBUSY: it has
 * LDMA_TAPS already; -EPROTO: it has another version; -ETIMEDOUT: it does not answer. */
int ldma_tap_reader_connect(struct ldma_tap_reader *reader, int timeout_ms);

/* Polls an attached reader as capture_session_poll polls a session. Once the device is gone, it gives what is left and
 * does not wait. -EBADMSG: the device wrote something that is no record. */
int ldma_tap_reader_poll(struct ldma_tap_reader *reader, struct ldma_batch *batch, int timeout_ms);

/* Returns whether the tap has ended. */
bool ldma_tap_reader_is_gone(const struct ldma_tap_reader *reader);

/* Ends the tap; what is in the ring stays there to be read. */
void ldma_tap_reader_detach(struct ldma_tap_reader *reader);

/* Returns what the device counted for this tap; it is final once the tap is gone. */
struct ldma_capture_counters ldma_tap_reader_counters(const struct ldma_tap_reader *reader);

#endif
