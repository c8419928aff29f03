/* SPDX-License-Identifier: BSD-2-Clause */
/* Timers of queue pairs, in a heap ordered by time. A deadline that moves later, as those of busy connections always
 * do, costs nothing: the heap corrects the timer's place when it comes to the top. The caller owns each struct
 * ldma_timer; the heap holds pointers to at most `capacity` of them. */
#ifndef LDMA_TIMER_H
#define LDMA_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_NEVER UINT64_MAX

struct ldma_timer {
	uint64_t deadline_ns; /* LDMA_NEVER: not running */
	uint64_t key_ns;      /* its time in the heap's order; never later than the deadline */
	uint32_t position;    /* in the heap, from 1; 0: not in it */
	void (*expire)(struct ldma_timer *timer);
};

struct ldma_timers {
	struct ldma_timer **heap; /* from 1 on */
	uint32_t count, capacity;
};

int ldma_timers_init(struct ldma_timers *timers, uint32_t capacity);
void ldma_timers_destroy(struct ldma_timers *timers);

/* Starts, moves or (LDMA_NEVER) stops a timer. Moving it later costs nothing. */
void ldma_timer_set(struct ldma_timers *timers, struct ldma_timer *timer, uint64_t deadline_ns);

/* Removes the timer from the heap; the caller may then free it. */
void ldma_timer_remove(struct ldma_timers *timers, struct ldma_timer *timer);

/* Stops and returns the first timer that is due at now_ns, or NULL if there is none. */
struct ldma_timer *ldma_timers_pop(struct ldma_timers *timers, uint64_t now_ns);

/* Returns when the next timer is due, or LDMA_NEVER. */
uint64_t ldma_timers_next(struct ldma_timers *timers);

#endif
