/* SPDX-License-Identifier: BSD-2-Clause */
/* Python's waiters for a pool's buffer: a thread waits on a semaphore, a task of an event loop for an inbox, whose
 * descriptor the loop watches. The thread that returns a buffer wakes them without Python. */
#ifndef LDMA_POOL_SLEEPER_H
#define LDMA_POOL_SLEEPER_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/pool.h"

struct pool_sleeper;

/* Holds the waiters of one event loop whose waiting is over. All but the eventfd is zeroed at first. */
struct pool_inbox {
	struct pool_sleeper *last;
	int fd;
};

struct pool_sleeper {
	struct ldma_pool_waiter waiter;
	struct pool_inbox *inbox; /* NULL: a thread */
	struct pool_sleeper *next;
	sem_t is_over;
};

void pool_sleeper_init(struct pool_sleeper *sleeper, struct pool_inbox *inbox);
void pool_sleeper_destroy(struct pool_sleeper *sleeper);

/* Waits up to timeout_ns and returns whether the waiting is over; no other thread touches the sleeper then. It returns
 * true only once. */
bool pool_sleeper_wait(struct pool_sleeper *sleeper, uint64_t timeout_ns);

/* Takes the sleepers that came since the last call, the first one first. */
struct pool_sleeper *pool_inbox_take(struct pool_inbox *inbox);

/* Makes an eventfd readable; -1 is no descriptor and does nothing. */
void pool_raise(int fd);

uint64_t pool_now_ns(void);

/* The log of all pools of the process. */
extern struct ldma_pool_log pool_log;

#endif
