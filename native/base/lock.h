/* SPDX-License-Identifier: BSD-2-Clause */
/* A lock around a few instructions: one word, cheap to take and to release when no other thread competes (a third of
 * what a mutex costs). A thread that finds it taken looks again for a moment, then sleeps in short steps: the holder
 * may wait for this very processor. A lock of zeros is free. */
#ifndef LDMA_LOCK_H
#define LDMA_LOCK_H

#include <stdint.h>
#include <time.h>

struct ldma_lock {
	uint32_t is_taken;
};

static inline void ldma_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline void ldma_lock_wait(const struct ldma_lock *lock)
{
	const struct timespec moment = {.tv_nsec = 1};

	for (int looks = 0; __atomic_load_n(&lock->is_taken, __ATOMIC_RELAXED); looks++) {
		if (looks < 100)
			ldma_pause();
		else
			nanosleep(&moment, NULL); /* sched_yield lets only equals run */
	}
}

static inline void ldma_lock(struct ldma_lock *lock)
{
	while (__builtin_expect(__atomic_exchange_n(&lock->is_taken, 1, __ATOMIC_ACQUIRE), 0))
		ldma_lock_wait(lock);
}

static inline void ldma_unlock(struct ldma_lock *lock)
{
	__atomic_store_n(&lock->is_taken, 0, __ATOMIC_RELEASE);
}

#endif
