/* The reader's side of a tap: packets of a livedma device, in whichever process of the same user it runs. One thread uses
 * a reader at a time. */
#ifndef LDMA_TAP_READER_H
#define LDMA_TAP_READER_H

#include <stdbool.h>

#include "batch.h"
#include "tap_ring.h"

#define LDMA_TAP_RING_BYTES (16u << 20) /* what ring_bytes 0 stands for */

struct ldma_tap_options {
	struct ldma_address address;       /* the device's */
	struct ldma_capture_config config; /* wake_bytes is not used */
	uint32_t ring_bytes;               /* a power of two of at least a page */
	bool rx, tx;
};

struct ldma_tap_reader;

/* Makes the ring. 0 or a negative errno. */
int ldma_tap_reader_open(const struct ldma_tap_options *options, struct ldma_tap_reader **ret);
void ldma_tap_reader_close(struct ldma_tap_reader *reader); /* detaches; accepts NULL */

/* Asks the device for a tap; if there is none, waits for it for timeout_ms. A device that opens later, while nobody is
 * in this call, waits a little for the next one.
 * 1: attached. 0: there is no device yet, or a signal came. Otherwise -EACCES: it is another user's; -EPERM: it refuses
 * this user; -EBUSY: it has LDMA_TAPS already; -EPROTO: it is of another version; -ETIMEDOUT: it does not answer. */
int ldma_tap_reader_connect(struct ldma_tap_reader *reader, int timeout_ms);

/* As capture_session_poll, of an attached reader. Where the device is gone, it gives what is left and does not wait.
 * -EBADMSG: the device wrote what is no record. */
int ldma_tap_reader_poll(struct ldma_tap_reader *reader, struct ldma_batch *batch, int timeout_ms);

/* Whether the tap has ended. */
bool ldma_tap_reader_is_gone(const struct ldma_tap_reader *reader);

/* Ends the tap; what is in the ring stays there to be read. */
void ldma_tap_reader_detach(struct ldma_tap_reader *reader);

/* What the device counted for this tap; final once it is gone. */
struct ldma_capture_counters ldma_tap_reader_counters(const struct ldma_tap_reader *reader);

#endif
