/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/timer.h"

#include <errno.h>
#include <stdlib.h>

int ldma_timers_init(struct ldma_timers *timers, uint32_t capacity)
{
	*timers = (struct ldma_timers){.capacity = capacity};
	timers->heap = calloc((size_t)capacity + 1, sizeof(struct ldma_timer *));
	return timers->heap ? 0 : -ENOMEM;
}

void ldma_timers_destroy(struct ldma_timers *timers)
{
	free(timers->heap);
	*timers = (struct ldma_timers){0};
}

static void place(struct ldma_timers *timers, struct ldma_timer *timer, uint32_t at)
{
	timers->heap[at] = timer;
	timer->position = at;
}

static void sift_up(struct ldma_timers *timers, struct ldma_timer *timer, uint32_t at)
{
	while (at > 1 && timers->heap[at / 2]->key_ns > timer->key_ns) {
		place(timers, timers->heap[at / 2], at);
		at /= 2;
	}
	place(timers, timer, at);
}

static void sift_down(struct ldma_timers *timers, struct ldma_timer *timer, uint32_t at)
{
	for (uint32_t child = at * 2; child <= timers->count; child = at * 2) {
		if (child < timers->count &&
		    timers->heap[child + 1]->key_ns < timers->heap[child]->key_ns)
			child++;
		if (timers->heap[child]->key_ns >= timer->key_ns)
			break;
		place(timers, timers->heap[child], at);
		at = child;
	}
	place(timers, timer, at);
}

void ldma_timer_set(struct ldma_timers *timers, struct ldma_timer *timer, uint64_t deadline_ns)
{
	timer->deadline_ns = deadline_ns;
	if (timer->position) {
		if (deadline_ns < timer->key_ns) {
			timer->key_ns = deadline_ns;
			sift_up(timers, timer, timer->position);
		}
	} else if (deadline_ns != LDMA_NEVER) {
		timer->key_ns = deadline_ns;
		sift_up(timers, timer, ++timers->count);
	}
}

void ldma_timer_remove(struct ldma_timers *timers, struct ldma_timer *timer)
{
	uint32_t at = timer->position;
	struct ldma_timer *last;

	timer->deadline_ns = LDMA_NEVER;
	if (!at)
		return;
	timer->position = 0;
	last = timers->heap[timers->count--];
	if (last == timer)
		return;
	sift_up(timers, last, at);
	sift_down(timers, last, last->position);
}

/* Returns the timer at the top once key and deadline agree, or NULL if none runs; corrects the places on the way. */
static struct ldma_timer *settle(struct ldma_timers *timers)
{
	while (timers->count) {
		struct ldma_timer *timer = timers->heap[1];

		if (timer->deadline_ns == LDMA_NEVER) {
			ldma_timer_remove(timers, timer);
		} else if (timer->key_ns < timer->deadline_ns) {
			timer->key_ns = timer->deadline_ns;
			sift_down(timers, timer, 1);
		} else {
			return timer;
		}
	}
	return NULL;
}

struct ldma_timer *ldma_timers_pop(struct ldma_timers *timers, uint64_t now_ns)
{
	struct ldma_timer *timer;

	/* Most calls find nothing due; keys are never later than deadlines. */
	if (!timers->count || timers->heap[1]->key_ns > now_ns)
		return NULL;
	timer = settle(timers);
	if (!timer || timer->deadline_ns > now_ns)
		return NULL;
	ldma_timer_remove(timers, timer);
	return timer;
}

uint64_t ldma_timers_next(struct ldma_timers *timers)
{
	struct ldma_timer *timer = settle(timers);

	return timer ? timer->deadline_ns : LDMA_NEVER;
}
