/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/pager.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/wake.h"
#include "memory/pager_internal.h"
#include "memory/vanishing.h"

static struct ldma_watched *watched_of(struct ldma_paged *paged)
{
	return (struct ldma_watched *)((char *)paged - offsetof(struct ldma_watched, paged));
}

/* Stops watching the parts of the range to which nobody listens. Called in the gate. */
void ldma_pager_unwatch(struct ldma_pager *pager, uintptr_t start, uintptr_t end)
{
	while (start < end) {
		uintptr_t next = end;
		bool is_covered = false;

		for (const struct ldma_listener *at = pager->listeners; at; at = at->next) {
			if (at->start <= start && start < at->end) {
				is_covered = true;
				start = at->end;
				break;
			}
			if (at->start > start && at->start < next)
				next = at->start;
		}
		if (is_covered)
			continue;
		ldma_userfault_unregister(&pager->userfault, start, next);
		start = next;
	}
}

void ldma_watched_get(struct ldma_watched *watched)
{
	__atomic_add_fetch(&watched->users, 1, __ATOMIC_RELAXED);
}

void ldma_watched_put(struct ldma_watched *watched)
{
	if (__atomic_sub_fetch(&watched->users, 1, __ATOMIC_ACQ_REL))
		return;
	ldma_paged_destroy(&watched->paged);
	ldma_pager_put(watched->listener.pager);
	free(watched);
}

static void remove_region(struct ldma_watched *watched)
{
	struct ldma_pager *pager = watched->listener.pager;

	pthread_mutex_lock(&pager->gate);
	ldma_listener_remove(&watched->listener);
	watched->is_closed = true;
	pthread_mutex_unlock(&pager->gate);
	ldma_watched_put(watched);
}

/* Called with the pager locked. */
static int add_region(struct ldma_pager *pager, void *memory, uint64_t length,
		      struct ldma_watched **ret)
{
	struct ldma_watched *watched = calloc(1, sizeof(*watched));
	int error;

	if (!watched)
		return -ENOMEM;
	error = ldma_paged_init(&watched->paged, &pager->paging, memory, length);
	if (error) {
		free(watched);
		return error;
	}
	watched->users = 1;
	watched->listener = (struct ldma_listener){
		.pager = pager,
		.hooks = &ldma_device_hooks,
		.arg = watched,
		.start = (uintptr_t)memory & ~(LDMA_PAGE - 1),
		.end = ((uintptr_t)memory + length + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1),
		.is_device = true,
	};
	pthread_mutex_lock(&pager->gate);
	ldma_listener_add(&watched->listener);
	pthread_mutex_unlock(&pager->gate);
	error = ldma_userfault_register(&pager->userfault, watched->listener.start,
					watched->listener.end);
	if (error)
		remove_region(watched);
	*ret = watched;
	return error;
}

int ldma_pager_open(void *memory, uint64_t length, struct ldma_paged **ret)
{
	struct ldma_watched *watched;
	struct ldma_pager *pager;
	int error;

	ldma_vanishing_start();
	error = ldma_pager_lock(&pager);
	if (!error)
		error = add_region(pager, memory, length, &watched);
	if (!error)
		*ret = &watched->paged;
	ldma_pager_unlock();
	return error;
}

void ldma_pager_close(struct ldma_paged *paged)
{
	struct ldma_watched *watched = watched_of(paged);

	if (watched->listener.pager->pid != getpid()) /* a child has only a copy, without threads */
		return;
	ldma_pager_lock_current();
	remove_region(watched);
	ldma_pager_unlock();
}

void ldma_pager_hold(struct ldma_paged *paged)
{
	ldma_watched_get(watched_of(paged));
}

void ldma_pager_drop(struct ldma_paged *paged)
{
	ldma_watched_put(watched_of(paged));
}

int ldma_pager_prefetch(struct ldma_paged *paged, uint64_t offset, uint64_t length, bool is_write)
{
	const struct ldma_watched *watched = watched_of(paged);
	uint64_t end = offset + length;
	int error = 0;

	while (offset < end && !error) {
		struct ldma_fault fault = {0};
		uint32_t filled = 0;

		ldma_paging_enter(paged->paging);
		if (watched->is_closed)
			error = -EBADF;
		else
			offset = ldma_paged_claim(paged, offset, end - offset, is_write, &fault);
		ldma_paging_leave(paged->paging);
		if (!fault.count)
			continue;
		error = ldma_fault_populate(&fault, &filled);
		ldma_paging_enter(paged->paging);
		if (!watched->is_closed)
			ldma_paged_resolve(&fault, filled);
		ldma_paging_leave(paged->paging);
	}
	return error;
}

static void tell(struct ldma_pager *pager, enum ldma_hook hook, enum ldma_cause cause,
		 uintptr_t start, uintptr_t end)
{
	ldma_listeners_tell(pager,
			    (struct ldma_memory_event){
				    .start = start, .end = end, .hook = hook, .cause = cause});
}

int ldma_pager_offer(struct ldma_paged *paged, uint64_t offset, uint64_t length)
{
	const struct ldma_watched *watched = watched_of(paged);
	struct ldma_pager *pager = watched->listener.pager;
	uintptr_t start = ((uintptr_t)paged->memory + offset) & ~(LDMA_PAGE - 1);
	uintptr_t end =
		((uintptr_t)paged->memory + offset + length + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1);
	int error;

	/* In the gate, or a region that is closed meanwhile would leave its memory watched. The watcher hears of memory
	 * that goes from here on before a device may use it. */
	ldma_paging_enter(paged->paging);
	error = watched->is_closed ? -EBADF
				   : ldma_userfault_register(&pager->userfault, start, end);
	if (!error) {
		ldma_paged_offer_range(paged, offset, length);
		tell(pager, LDMA_HOOK_update_range, LDMA_CAUSE_offered, start, end);
	}
	ldma_paging_leave(paged->paging);
	return error;
}

long ldma_pager_sync(struct ldma_paged *paged, uint64_t offset, uint64_t length,
		     struct ldma_pager_range *ret, uint32_t count, uint64_t *ret_end)
{
	const struct ldma_watched *watched = watched_of(paged);
	struct ldma_pager *pager = watched->listener.pager;
	uintptr_t memory = (uintptr_t)paged->memory, start = memory + offset, end = start + length;
	struct ldma_written written[64];
	bool is_closed;
	uintptr_t walked;
	long found;

	/* A copy that has begun ends before this thread gets the gate. */
	ldma_paging_enter(paged->paging);
	is_closed = watched->is_closed;
	ldma_paging_leave(paged->paging);
	if (is_closed)
		return -EBADF;
	found = ldma_userfault_written(&pager->userfault, start & ~(LDMA_PAGE - 1),
				       (end + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1), written,
				       count < 64 ? count : 64, &walked);
	ldma_paging_enter(paged->paging);
	for (long i = 0; i < found; i++)
		tell(pager, LDMA_HOOK_sync_range, LDMA_CAUSE_taken, written[i].start,
		     written[i].end);
	ldma_paging_leave(paged->paging);
	for (long i = 0; i < found; i++) {
		uintptr_t from = written[i].start < start ? start : written[i].start;
		uintptr_t to = written[i].end > end ? end : written[i].end;

		ret[i] = (struct ldma_pager_range){from - memory, to - from};
	}
	if (found >= 0)
		*ret_end = (walked < end ? walked : end) - memory;
	return found;
}
