/* SPDX-License-Identifier: BSD-2-Clause */
/* The server's side of a connection of RPC-over-RDMA version 1 (RFC 8166): calls come in by Receives with buffers of
 * the connection's receive pool; data moves through buffers of its data pool; replies go out in order.
 *
 * Credits are the calls that the peer may have under way. Each has a Receive that is posted, or whose call is being
 * worked on; the Receive for the next call is posted before the reply that lets the peer send it. A few more are posted
 * than were granted; a peer that sends more than that finds no Receive, and its device waits. The number can be raised
 * and lowered at any time.
 *
 * Any thread may call all functions. */
#ifndef LDMA_ENDPOINT_H
#define LDMA_ENDPOINT_H

#include "base/times.h"
#include "device/qp.h"
#include "memory/pool.h"
#include "rpc/call.h"
#include "rpc/rpcrdma.h"

struct ldma_service;

/* Receives beyond the credits, as Linux's server has them: a peer that counts wrong by a few finds one. */
#define LDMA_ENDPOINT_SPARE_RECEIVES 8

struct ldma_endpoint_config {
	struct ldma_qp *qp; /* in INIT at least; its completions go to the service's queue */
	struct ldma_pool *receive_pool, *data_pool;
	uint32_t receive_bytes;  /* of a buffer of the receive pool */
	uint32_t data_bytes;     /* of a buffer of the data pool */
	uint64_t number;         /* tells connections apart */
	uint32_t credits;        /* to begin with, at least 1 */
	uint32_t credits_max;    /* with the spare ones no more than the queue pair's Receives */
	uint32_t send_inline;    /* the longest SEND that the peer takes */
	uint32_t completions;    /* the most at once: the rings of the queue pair */
	bool may_invalidate;     /* SENDs may invalidate keys of the peer (RFC 8797) */
	uint64_t message_bytes;  /* the longest call that is gathered for the slow path */
	uint64_t gathered_bytes; /* the most that such calls take together */
	uint64_t stall_ns;       /* a reply that is not acknowledged by then ends the connection */
	struct ldma_rpcrdma_limits limits;
	void *owner; /* for the binding only */
};

/* The counted kinds of errors, of the peer and of the connection. */
#define LDMA_ENDPOINT_ERRORS(X)                                                                    \
	X(version)    /* a call of another version: ERR_VERS */                                    \
	X(header)     /* a header that breaks a rule: ERR_CHUNK */                                 \
	X(unanswered) /* a header that breaks a rule and gets no answer */                         \
	X(rdma_error) /* an RDMA_ERROR came */                                                     \
	X(message)    /* a call whose parts make no message, or one that is too long */            \
	X(no_room)    /* a reply that fits nowhere: ERR_CHUNK */                                   \
	X(memory)     /* a call or reply that found no memory: ERR_CHUNK */                        \
	X(connection) /* what was posted failed: the connection is over */                         \
	X(stalled)    /* a reply was not acknowledged in time: the connection is over */

/* The statistics: LEVEL(name) and HELD(name) are present values; COUNT(name) and TIMES(name) count all so far. Python
 * reads the names from here. */
#define LDMA_ENDPOINT_STATS(LEVEL, HELD, COUNT, TIMES)                                             \
	LEVEL(credits)                                                                             \
	LEVEL(posted)                                                                              \
	LEVEL(granted)                                                                             \
	LEVEL(in_progress)                                                                         \
	LEVEL(replying)                                                                            \
	LEVEL(waiting_pieces)                                                                      \
	LEVEL(queued_sends)                                                                        \
	LEVEL(asked) /* credits, by the peer's last call */                                        \
	COUNT(calls)                                                                               \
	COUNT(fast_calls)                                                                          \
	COUNT(slow_calls)                                                                          \
	COUNT(replies)                                                                             \
	COUNT(long_replies)                                                                        \
	COUNT(dropped_calls)                                                                       \
	COUNT(drained_calls) /* that came after ldma_endpoint_drain */                             \
	COUNT(bytes_received)                                                                      \
	COUNT(bytes_sent)                                                                          \
	COUNT(bytes_pulled)                                                                        \
	COUNT(bytes_pushed)                                                                        \
	COUNT(invalidations)                                                                       \
	COUNT(receives_late)                                                                       \
	HELD(gathered_bytes)                                                                       \
	COUNT(read_bytes) /* of files */                                                           \
	COUNT(written_bytes)                                                                       \
	TIMES(latency)       /* of calls, until their replies were posted */                       \
	TIMES(buffer_waits)  /* of calls for a data buffer */                                      \
	TIMES(send_waits)    /* for room in the send queue */                                      \
	TIMES(storage)       /* of accesses to the store, which programs report */                 \
	TIMES(storage_queue) /* the part of that before the store began */

struct ldma_endpoint_stats {
#define LEVEL(name) uint32_t name;
#define COUNT(name) uint64_t name;
#define TIMES(name) struct ldma_times name;
	LDMA_ENDPOINT_STATS(LEVEL, COUNT, COUNT, TIMES)
#undef LEVEL
#undef TIMES
	struct {
		LDMA_ENDPOINT_ERRORS(COUNT)
	} errors;
#undef COUNT
};

/* Makes an endpoint and posts its Receives. Returns 0, -EINVAL, -ENOMEM, -ENOSPC (the service's queue is too short for
 * one more) or -ESHUTDOWN. The queue pair has to stay until ldma_endpoint_close, the pools until the endpoint is over
 * (ldma_service_next_ended). */
int ldma_endpoint_create(struct ldma_service *service, const struct ldma_endpoint_config *config,
			 struct ldma_endpoint **ret);

/* Says that the queue pair is ready to send: replies that waited for that go out. */
void ldma_endpoint_start(struct ldma_endpoint *endpoint);

/* Takes no further call: one that comes is dropped unanswered, as if the connection had ended before it. Calls that are
 * being worked on are answered; after them, in_progress and replying are 0 (dropped calls do not count). It cannot be
 * taken back: ldma_endpoint_close comes next. */
void ldma_endpoint_drain(struct ldma_endpoint *endpoint);

/* Returns when the last reply was posted, by the monotonic clock; 0: there was none. */
uint64_t ldma_endpoint_replied_ns(struct ldma_endpoint *endpoint);

/* Ends the connection: the queue pair goes to ERR and is not touched any more; calls that are being worked on get
 * errors. Calling it a second time has no effect. */
void ldma_endpoint_close(struct ldma_endpoint *endpoint);

/* Gives back the creator's reference; the endpoint is freed with the last one. NULL is accepted. */
void ldma_endpoint_put(struct ldma_endpoint *endpoint);

/* Sets how many calls the peer may have under way, from 1 to credits_max. */
void ldma_endpoint_set_credits(struct ldma_endpoint *endpoint, uint32_t credits);

/* Counts the bytes of files that a call read or wrote which is answered outside of a program. */
void ldma_endpoint_moved(struct ldma_endpoint *endpoint, uint64_t read_bytes,
			 uint64_t written_bytes);

bool ldma_endpoint_is_open(struct ldma_endpoint *endpoint);
void *ldma_endpoint_owner(struct ldma_endpoint *endpoint);
void ldma_endpoint_get_stats(struct ldma_endpoint *endpoint, struct ldma_endpoint_stats *ret);

/* For threads that answer calls which no program took (ldma_service_next_call): */

/* Returns the whole message. */
const uint8_t *ldma_call_message(const struct ldma_call *call, uint64_t *ret_length);

/* Ends the call as ldma_call_reply does, and sends the data too: it goes to the write chunk if there is one, or else
 * belongs at data_offset of the message. It copies what it needs. */
void ldma_call_answer(struct ldma_call *call, const void *message, uint64_t length,
		      const void *data, uint64_t data_length, uint64_t data_offset);

/* Ends the call without a reply. */
void ldma_call_drop(struct ldma_call *call);

#endif
