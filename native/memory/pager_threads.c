/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the pager's threads: the watcher and the filler. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/pager_internal.h"
#include "memory/vanishing.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define EVENTS 16 /* read at once */

int ldma_stop_descriptor(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/* Updates all regions that the event touches. */
static void tell(struct ldma_pager *pager, uintptr_t start, uintptr_t end, bool is_unmapped)
{
	for (struct ldma_watched *at = pager->regions; at; at = at->next) {
		uintptr_t memory = (uintptr_t)at->paged.memory;
		uintptr_t from = start < memory ? memory : start;

		if (end <= at->start || at->end <= start || end <= from)
			continue;
		if (is_unmapped)
			ldma_paged_unmap_range(&at->paged, from - memory, end - from);
		else
			ldma_paged_invalidate_range(&at->paged, from - memory, end - from);
	}
}

static void take_event(struct ldma_pager *pager, const struct ldma_userfault_event *event)
{
	switch (event->kind) {
	case LDMA_USERFAULT_REMOVE:
		tell(pager, event->start, event->end, false);
		break;
	case LDMA_USERFAULT_UNMAP:
		tell(pager, event->start, event->end, true);
		break;
	case LDMA_USERFAULT_REMAP: /* the memory took its registration along */
		tell(pager, event->start, event->end, true);
		ldma_pager_unwatch(pager, event->to, event->to + (event->end - event->start));
		break;
	}
}

void *ldma_pager_watch(void *arg)
{
	struct ldma_pager *pager = arg;
	struct pollfd fds[] = {
		{.fd = pager->userfault.fd, .events = POLLIN},
		{.fd = pager->stop_fd, .events = POLLIN},
	};

	pthread_setname_np(pthread_self(), "ldma-watcher");
	for (;;) {
		struct ldma_userfault_event events[EVENTS];
		int count;

		poll(fds, 2, -1);
		if (fds[1].revents)
			break;
		ldma_vanishing_verify();
		/* Reading lets the program go on, so it is done in the gate: the tables have to be right before a
		 * device looks again. */
		pthread_mutex_lock(&pager->gate);
		count = ldma_userfault_read(&pager->userfault, events, EVENTS);
		for (int i = 0; i < count; i++)
			take_event(pager, &events[i]);
		pthread_mutex_unlock(&pager->gate);
	}
	ldma_pager_put(pager);
	return NULL;
}

int ldma_fault_populate(const struct ldma_fault *fault, uint32_t *ret_filled)
{
	int advice = fault->is_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	uintptr_t base = (uintptr_t)fault->paged->memory & ~(LDMA_PAGE - 1);
	uint8_t *at = (uint8_t *)(base + (fault->first << LDMA_PAGE_SHIFT));
	uint32_t step = fault->count;

	*ret_filled = 0;
	while (*ret_filled < fault->count) {
		if (!madvise(at + ((uint64_t)*ret_filled << LDMA_PAGE_SHIFT),
			     (size_t)step << LDMA_PAGE_SHIFT, advice)) {
			*ret_filled += step;
		} else if (errno != EINTR && errno != EAGAIN) {
			if (step == 1)
				return -errno;
			step = 1; /* one by one up to the page that cannot be filled */
		}
	}
	return 0;
}

void *ldma_pager_fill(void *arg)
{
	struct ldma_pager *pager = arg;
	struct ldma_fault fault;

	pthread_setname_np(pthread_self(), "ldma-filler");
	pthread_mutex_lock(&pager->gate);
	while (!pager->is_stopping) {
		struct ldma_watched *watched;
		uint32_t filled;

		if (!ldma_paging_take_fault(&pager->paging, &fault)) {
			pthread_cond_wait(&pager->has_fault, &pager->gate);
			continue;
		}
		watched = (struct ldma_watched *)((char *)fault.paged -
						  offsetof(struct ldma_watched, paged));
		ldma_watched_get(watched);
		pthread_mutex_unlock(&pager->gate);
		ldma_vanishing_verify();
		ldma_fault_populate(&fault, &filled); /* an access hears of a failure */
		pthread_mutex_lock(&pager->gate);
		if (!watched->is_closed)
			ldma_paged_resolve(&fault, filled);
		pthread_mutex_unlock(&pager->gate);
		ldma_watched_put(watched);
		pthread_mutex_lock(&pager->gate);
	}
	pthread_mutex_unlock(&pager->gate);
	ldma_pager_put(pager);
	return NULL;
}
