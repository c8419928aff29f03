/* The server's side of a connection of RPC-over-RDMA version 1 (RFC 8166): calls come in by Receives whose buffers are of
 * the connection's receive pool; data moves through buffers of its data pool; replies go out in order.
 *
 * Credits are what the peer may have under way. So many Receives are posted, or their calls are being worked on; the one
 * for the next call is posted before the reply that lets the peer send it. Who sends more than it was granted finds no
 * Receive, and waits. The number can be raised and lowered at any time.
 *
 * All functions may be called by any thread. */
#ifndef LDMA_ENDPOINT_H
#define LDMA_ENDPOINT_H

#include "call.h"
#include "pool.h"
#include "qp.h"
#include "rpcrdma.h"
#include "times.h"

struct ldma_service;

struct ldma_endpoint_config {
	struct ldma_qp *qp; /* in INIT at least; its completions go to the service's queue */
	struct ldma_pool *receive_pool, *data_pool;
	uint32_t receive_bytes;  /* of a buffer of the receive pool */
	uint32_t data_bytes;     /* of a buffer of the data pool */
	uint64_t number;         /* tells connections apart */
	uint32_t credits;        /* to begin with, at least 1 */
	uint32_t credits_max;    /* at most as many as the queue pair has Receives */
	uint32_t send_inline;    /* the longest SEND that the peer takes */
	uint32_t completions;    /* that may be there at once: the rings of the queue pair */
	bool may_invalidate;     /* keys of the peer, by SEND (RFC 8797) */
	uint64_t message_bytes;  /* the longest call that is gathered for the slow path */
	uint64_t gathered_bytes; /* what such calls may take together */
	uint64_t stall_ns;       /* a reply that is not acknowledged by then ends the connection */
	struct ldma_rpcrdma_limits limits;
	void *owner; /* the binding's */
};

/* Kinds of what peers do wrong, as they are counted. */
#define LDMA_ENDPOINT_ERRORS(X)                                                                    \
	X(version)    /* a call of another version: ERR_VERS */                                    \
	X(header)     /* a header that breaks a rule: ERR_CHUNK */                                 \
	X(unanswered) /* a header that is not even answered */                                     \
	X(rdma_error) /* an RDMA_ERROR came */                                                     \
	X(message)    /* a call whose parts do not make a message, or too long a one */            \
	X(no_room)    /* a reply that fits nowhere: ERR_CHUNK */                                   \
	X(memory)     /* a call or reply that found no memory: ERR_CHUNK */                        \
	X(connection) /* what was posted failed: the connection is over */                         \
	X(stalled)    /* a reply was not acknowledged in time: likewise */

struct ldma_endpoint_stats {
	uint32_t credits, posted, granted, in_progress, replying, waiting_pieces, queued_sends;
	uint32_t asked; /* credits, by the peer's last call */
	uint64_t calls, fast_calls, slow_calls, replies, long_replies, dropped_calls;
	uint64_t bytes_received, bytes_sent, bytes_pulled, bytes_pushed;
	uint64_t invalidations, receives_late;
	uint64_t gathered_bytes;
	struct {
#define X(name) uint64_t name;
		LDMA_ENDPOINT_ERRORS(X)
#undef X
	} errors;
	uint64_t read_bytes, written_bytes; /* of files */
	struct ldma_times buffer_waits;     /* of calls for a data buffer */
	struct ldma_times send_waits;       /* for room in the send queue */
	struct ldma_times latency;          /* of calls, until their replies were posted */
	struct ldma_times storage;          /* of accesses to the store, as programs tell */
	struct ldma_times storage_queue;    /* of that: before the store began */
};

/* 0, -EINVAL, -ENOMEM, -ENOSPC (the service's queue is too short for one more) or -ESHUTDOWN. Receives are posted. The queue
 * pair has to stay until ldma_endpoint_close, the pools until the endpoint is over (ldma_service_next_over). */
int ldma_endpoint_create(struct ldma_service *service, const struct ldma_endpoint_config *config,
			 struct ldma_endpoint **ret);

/* The queue pair is ready to send: what has waited for that goes. */
void ldma_endpoint_start(struct ldma_endpoint *endpoint);

/* Ends the connection: the queue pair goes to ERR, and is not touched any more; calls that are being worked on get errors.
 * Again does nothing. */
void ldma_endpoint_close(struct ldma_endpoint *endpoint);

/* The creator is done with it; it goes when all others are, too. NULL is accepted. */
void ldma_endpoint_put(struct ldma_endpoint *endpoint);

/* How many calls the peer may have under way; clamped to 1 and credits_max. */
void ldma_endpoint_set_credits(struct ldma_endpoint *endpoint, uint32_t credits);

/* A call that is answered outside of a program has read or written so many bytes of files. */
void ldma_endpoint_moved(struct ldma_endpoint *endpoint, uint64_t read_bytes,
			 uint64_t written_bytes);

bool ldma_endpoint_is_open(struct ldma_endpoint *endpoint);
void *ldma_endpoint_owner(struct ldma_endpoint *endpoint);
void ldma_endpoint_get_stats(struct ldma_endpoint *endpoint, struct ldma_endpoint_stats *ret);

/* For those who work on calls outside of a program (ldma_service_next_call): */

/* The whole message. */
const uint8_t *ldma_call_message(const struct ldma_call *call, uint64_t *ret_length);

/* Ends the call as ldma_call_reply does, data included: it goes to the write chunk if there is one, or else belongs at
 * data_offset of the message. Copies what it needs. */
void ldma_call_answer(struct ldma_call *call, const void *message, uint64_t length,
		      const void *data, uint64_t data_length, uint64_t data_offset);

/* Ends the call without a reply. */
void ldma_call_drop(struct ldma_call *call);

#endif
