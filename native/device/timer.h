/* Deadlines of queue pairs: a heap that tolerates deadlines which move later, as those of busy connections always do. */
#ifndef LDMA_TIMER_H
#define LDMA_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_NEVER UINT64_MAX

struct ldma_timer {
	uint64_t deadline_ns; /* LDMA_NEVER: not running */
	uint64_t key_ns;      /* where it is in the heap; never later than the deadline */
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

/* Takes the timer out: it may be freed. */
void ldma_timer_remove(struct ldma_timers *timers, struct ldma_timer *timer);

/* The first timer that is due at now_ns, stopped; NULL if there is none. */
struct ldma_timer *ldma_timers_pop(struct ldma_timers *timers, uint64_t now_ns);

/* When the next timer is due, or LDMA_NEVER. */
uint64_t ldma_timers_next(struct ldma_timers *timers);

#endif
