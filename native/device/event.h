/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events, which belong to no work request. A device has one bounded queue of them, which it fills and its
 * caller polls, on the thread that owns the device. */
#ifndef LDMA_EVENT_H
#define LDMA_EVENT_H

#include <stdbool.h>
#include <stdint.h>

/* Names and numbers of ibv_event_type. */
#define LDMA_EVENT_TYPES(X)                                                                        \
	X(CQ_ERR, 0)               /* an overrun: completions were lost */                         \
	X(QP_FATAL, 1)             /* it is in ERR: its completions were lost */                   \
	X(QP_REQ_ERR, 2)           /* it is in ERR: the peer's request was not valid */            \
	X(QP_ACCESS_ERR, 3)        /* it is in ERR: the peer had no right to what it asked for */  \
	X(COMM_EST, 4)             /* the peer's first packet, while in RTR */                     \
	X(SQ_DRAINED, 5)           /* in SQD, all that had begun is complete */                    \
	X(SRQ_LIMIT_REACHED, 15)   /* fewer shared Receives are left than the limit */             \
	X(QP_LAST_WQE_REACHED, 16) /* in ERR, it takes no more shared Receives */

enum ldma_event_type {
#define X(name, value) LDMA_EVENT_##name = (value),
	LDMA_EVENT_TYPES(X)
#undef X
};

struct ldma_event {
	uint8_t type;
	uint32_t qp_num;    /* of the queue pair at which it happened */
	const void *object; /* the struct ldma_qp, ldma_cq or (shared) ldma_rq that it is about */
};

struct ldma_events {
	struct ldma_event *ring;
	uint32_t mask, head, tail;
};

/* Returns 0 or -ENOMEM. capacity is rounded up to a power of two. */
int ldma_events_init(struct ldma_events *events, uint32_t capacity);
void ldma_events_destroy(struct ldma_events *events);

/* Adds an event. Returns false if there is no room: the event is lost. */
bool ldma_events_push(struct ldma_events *events, const struct ldma_event *event);

/* Takes the oldest event. Returns false if there is none. */
bool ldma_events_poll(struct ldma_events *events, struct ldma_event *ret);

/* Removes all events about the object, which the caller is about to destroy. */
void ldma_events_forget(struct ldma_events *events, const void *object);

#endif
