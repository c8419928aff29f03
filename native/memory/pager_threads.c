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

int ldma_wake_descriptor(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/* A region's part of an event; false: none of its bytes is there. */
static bool find_part(const struct ldma_watched *watched, const struct ldma_memory_event *event,
		      uint64_t *ret_offset, uint64_t *ret_length)
{
	uintptr_t memory = (uintptr_t)watched->paged.memory;
	uintptr_t from = event->start < memory ? memory : event->start;

	*ret_offset = from - memory;
	*ret_length = event->end > from ? event->end - from : 0;
	return *ret_length;
}

static void invalidate(void *arg, const struct ldma_memory_event *event)
{
	struct ldma_watched *watched = arg;
	uint64_t offset, length;

	if (!find_part(watched, event, &offset, &length))
		return;
	switch (event->cause) {
	case LDMA_CAUSE_unmapped:
	case LDMA_CAUSE_remapped:
		ldma_paged_unmap_range(&watched->paged, offset, length);
		break;
	case LDMA_CAUSE_migrated: /* it copies by addresses, and they have stayed */
		break;
	default:
		ldma_paged_invalidate_range(&watched->paged, offset, length);
	}
}

static void change_protection(void *arg, const struct ldma_memory_event *event)
{
	if (event->cause == LDMA_CAUSE_protected) /* the child of a fork has pages of its own */
		invalidate(arg, event);
}

static void release(void *arg, const struct ldma_memory_event *event)
{
	struct ldma_watched *watched = arg;

	(void)event;
	ldma_paged_release(&watched->paged);
}

/* What is synced stays; a page that is there now comes when it is asked for. */
const struct ldma_hooks ldma_device_hooks = {
	.release = release,
	.invalidate_range = invalidate,
	.change_protection = change_protection,
};

static void take_event(struct ldma_pager *pager, const struct ldma_userfault_event *found)
{
	struct ldma_memory_event event = {
		.start = found->start,
		.end = found->end,
		.hook = LDMA_HOOK_invalidate_range,
	};

	switch (found->kind) {
	case LDMA_USERFAULT_REMOVE:
		event.cause = LDMA_CAUSE_removed;
		break;
	case LDMA_USERFAULT_UNMAP:
		event.cause = LDMA_CAUSE_unmapped;
		break;
	case LDMA_USERFAULT_REMAP:
		event.cause = LDMA_CAUSE_remapped;
		event.to = found->to;
		break;
	}
	ldma_listeners_tell(pager, event);
	if (found->kind != LDMA_USERFAULT_REMAP)
		return;
	/* The memory took its registration along, perhaps to where somebody listens. */
	event.hook = LDMA_HOOK_update_range;
	event.start = found->to;
	event.end = found->to + (found->end - found->start);
	event.to = 0;
	ldma_listeners_tell(pager, event);
	ldma_pager_unwatch(pager, event.start, event.end);
}

/* After a fork, private pages are shared with the child until one of the two writes. */
static void take_forks(struct ldma_pager *pager)
{
	if (__atomic_exchange_n(&pager->is_forked, false, __ATOMIC_ACQUIRE))
		ldma_listeners_tell(pager, (struct ldma_memory_event){
						   .end = UINTPTR_MAX,
						   .hook = LDMA_HOOK_change_protection,
						   .cause = LDMA_CAUSE_forked,
					   });
}

void *ldma_pager_watch(void *arg)
{
	struct ldma_pager *pager = arg;
	struct pollfd fds[] = {
		{.fd = pager->userfault.fd, .events = POLLIN},
		{.fd = pager->wake_fd, .events = POLLIN},
	};
	bool is_over = false;

	pthread_setname_np(pthread_self(), "ldma-watcher");
	while (!is_over) {
		struct ldma_userfault_event events[EVENTS];
		int count;

		poll(fds, 2, -1);
		if (fds[1].revents)
			ldma_unsignal(pager->wake_fd);
		ldma_vanishing_verify();
		/* Reading lets the program go on, so it is done in the gate: the tables have to be right before a
		 * device looks again. */
		pthread_mutex_lock(&pager->gate);
		is_over = pager->is_stopping;
		count = is_over ? 0 : ldma_userfault_read(&pager->userfault, events, EVENTS);
		for (int i = 0; i < count; i++)
			take_event(pager, &events[i]);
		take_forks(pager);
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
