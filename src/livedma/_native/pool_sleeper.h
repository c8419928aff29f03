/* Those of Python who wait for a pool's buffer: threads, by a semaphore, and tasks of an event loop, by an inbox whose
 * descriptor the loop watches. Whoever returns a buffer wakes them without Python. */
#ifndef LDMA_POOL_SLEEPER_H
#define LDMA_POOL_SLEEPER_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool.h"

struct pool_sleeper;

/* Of one event loop: those of its tasks whose waiting is over. Zeroed at first, but for the eventfd. */
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

/* Whether its waiting is over, within so many ns; then nobody else touches it any more. True once. */
bool pool_sleeper_wait(struct pool_sleeper *sleeper, uint64_t timeout_ns);

/* All that came since it was last asked, the first first. */
struct pool_sleeper *pool_inbox_take(struct pool_inbox *inbox);

/* Makes an eventfd readable; nothing happens to none (-1). */
void pool_raise(int fd);

uint64_t pool_now_ns(void);

/* The process's one. */
extern struct ldma_pool_log pool_log;

#endif
