/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls of a service that wait for a thread of the slow path.
 *
 * Endpoints take turns: a call waits for one of each other endpoint at most, besides those of its own endpoint, however
 * many calls a greedy peer has there. Control traffic has a lane of its own. The caller has the service's mutex. */
#ifndef LDMA_SLOW_QUEUE_H
#define LDMA_SLOW_QUEUE_H

#include <stdbool.h>

struct call;
struct ldma_endpoint;

enum slow_lane { SLOW_PLAIN, SLOW_CONTROL, SLOW_LANES };

struct call_list {
	struct call *first, *last;
};

/* An endpoint's calls in one lane; the endpoint is in the lane's list of endpoints while it has some. */
struct slow_place {
	struct call_list calls;
	struct ldma_endpoint *next;
};

struct slow_queue {
	struct {
		struct ldma_endpoint *first, *last;
	} lanes[SLOW_LANES];
	enum slow_lane turn; /* the lane that is next, if both have calls */
};

void slow_queue_add(struct slow_queue *queue, struct call *call, enum slow_lane lane);

/* Returns whether there is a call for a thread; only_control: for one that serves no other calls. */
bool slow_queue_has(const struct slow_queue *queue, bool only_control);

/* Takes the next call. Lanes take turns, so that neither kind keeps the other from the threads. NULL: there is none. */
struct call *slow_queue_take(struct slow_queue *queue, bool only_control);

#endif
