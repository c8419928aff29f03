/* SPDX-License-Identifier: BSD-2-Clause */
/* Wakes a thread by an eventfd that it polls, or by a word on which it sleeps (futex). */
#ifndef LDMA_WAKE_H
#define LDMA_WAKE_H

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline struct timespec ldma_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
				 .tv_nsec = (long)(ns % 1000000000)};
}

/* Makes an eventfd readable. */
static inline void ldma_signal(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Makes an eventfd or timerfd unreadable. */
static inline void ldma_unsignal(int fd)
{
	uint64_t value;

	while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
}

static inline void ldma_futex_wake_all(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps while the word has the value. Returns 0 (woken, changed or timed out) or -EINTR. */
static inline int ldma_futex_wait(uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
	struct timespec timeout = ldma_timespec(timeout_ns);
	long result = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &timeout, NULL, 0);

	return result < 0 && errno == EINTR ? -EINTR : 0;
}

#endif
