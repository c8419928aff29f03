/* SPDX-License-Identifier: BSD-2-Clause */
#include "pool_sleeper.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

struct ldma_pool_log pool_log = LDMA_POOL_LOG_INIT;

uint64_t pool_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void pool_raise(int fd)
{
	const uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		return; /* full: it is readable already */
}

static void complete(struct ldma_pool_waiter *waiter, void *context)
{
	struct pool_sleeper *sleeper = (struct pool_sleeper *)waiter;
	struct pool_inbox *inbox = sleeper->inbox;

	(void)context;
	if (inbox) {
		sleeper->next = __atomic_load_n(&inbox->last, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(&inbox->last, &sleeper->next, sleeper, true,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
		pool_raise(inbox->fd);
	}
	sem_post(&sleeper->is_over); /* the last access: the waiter may free it from here on */
}

void pool_sleeper_init(struct pool_sleeper *sleeper, struct pool_inbox *inbox)
{
	*sleeper = (struct pool_sleeper){.waiter.complete = complete, .inbox = inbox};
	sem_init(&sleeper->is_over, 0, 0);
}

void pool_sleeper_destroy(struct pool_sleeper *sleeper)
{
	sem_destroy(&sleeper->is_over);
}

bool pool_sleeper_wait(struct pool_sleeper *sleeper, uint64_t timeout_ns)
{
	uint64_t now_ns = pool_now_ns(), until_ns;
	struct timespec until;

	until_ns = timeout_ns > UINT64_MAX / 4 ? UINT64_MAX / 4 : now_ns + timeout_ns;
	until.tv_sec = (time_t)(until_ns / 1000000000);
	until.tv_nsec = (long)(until_ns % 1000000000);
	while (sem_clockwait(&sleeper->is_over, CLOCK_MONOTONIC, &until))
		if (errno != EINTR)
			return false;
	return true;
}

struct pool_sleeper *pool_inbox_take(struct pool_inbox *inbox)
{
	struct pool_sleeper *sleeper, *first = NULL;

	sleeper = __atomic_exchange_n(&inbox->last, NULL, __ATOMIC_ACQUIRE);
	while (sleeper) {
		struct pool_sleeper *before = sleeper->next;

		sleeper->next = first;
		first = sleeper;
		sleeper = before;
	}
	return first;
}
