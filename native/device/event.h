/* Events that belong to no work request: a bounded queue of them at the device. */
#ifndef LDMA_EVENT_H
#define LDMA_EVENT_H

#include <stdbool.h>
#include <stdint.h>

/* Names and numbers of ibv_event_type. */
#define LDMA_EVENT_TYPES(X)                                                                        \
	X(CQ_ERR, 0)               /* an overrun: completions were lost */                         \
	X(QP_FATAL, 1)             /* went to ERR since its completions were lost */               \
	X(QP_REQ_ERR, 2)           /* went to ERR since the peer asked for what is not valid */    \
	X(QP_ACCESS_ERR, 3)        /* went to ERR since the peer asked for what it may not have */ \
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
	uint32_t qp_num;    /* of the queue pair that it happened to */
	const void *object; /* struct ldma_qp, ldma_cq or (shared) ldma_rq that it is about */
};

struct ldma_events {
	struct ldma_event *ring;
	uint32_t mask, head, tail;
};

/* 0 or -ENOMEM. capacity is rounded up to a power of two. */
int ldma_events_init(struct ldma_events *events, uint32_t capacity);
void ldma_events_destroy(struct ldma_events *events);

/* False if there is no room: the event is lost. */
bool ldma_events_push(struct ldma_events *events, const struct ldma_event *event);

/* Takes the oldest. False if there is none. */
bool ldma_events_poll(struct ldma_events *events, struct ldma_event *ret);

/* Takes out all that are about the object, which is about to go. */
void ldma_events_forget(struct ldma_events *events, const void *object);

#endif
