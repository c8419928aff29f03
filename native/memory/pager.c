/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/pager.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/wake.h"
#include "memory/pager_internal.h"
#include "memory/vanishing.h"

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct ldma_pager *current; /* of this process, while it has regions */

static struct ldma_pager *pager_of(struct ldma_paging *paging)
{
	return (struct ldma_pager *)((char *)paging - offsetof(struct ldma_pager, paging));
}

static struct ldma_watched *watched_of(struct ldma_paged *paged)
{
	return (struct ldma_watched *)((char *)paged - offsetof(struct ldma_watched, paged));
}

static void enter(struct ldma_paging *paging)
{
	pthread_mutex_lock(&pager_of(paging)->gate);
}

static void leave(struct ldma_paging *paging)
{
	pthread_mutex_unlock(&pager_of(paging)->gate);
}

static void wake(struct ldma_paging *paging)
{
	pthread_cond_signal(&pager_of(paging)->has_fault);
}

static uint64_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec;
}

static const struct ldma_paging_ops ops = {
	.enter = enter,
	.leave = leave,
	.load = ldma_vanishing_load,
	.store = ldma_vanishing_store,
	.compare_exchange = ldma_vanishing_compare_exchange,
	.wake = wake,
	.seconds = seconds,
};

void ldma_pager_put(struct ldma_pager *pager)
{
	if (__atomic_sub_fetch(&pager->users, 1, __ATOMIC_ACQ_REL))
		return;
	ldma_userfault_close(&pager->userfault);
	close(pager->stop_fd);
	pthread_cond_destroy(&pager->has_fault);
	pthread_mutex_destroy(&pager->gate);
	free(pager);
}

/* Starts a thread with all signals blocked. No handler of the program may run there: it might free memory, and wait for
 * the thread that it interrupts. */
static int start_thread(struct ldma_pager *pager, void *(*run)(void *))
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	__atomic_add_fetch(&pager->users, 1, __ATOMIC_RELAXED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(&thread, &attributes, run, pager);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (error)
		ldma_pager_put(pager);
	return error;
}

/* Tells the threads to end; the last user of the pager cleans up. */
static void stop(struct ldma_pager *pager)
{
	pthread_mutex_lock(&pager->gate);
	pager->is_stopping = true;
	pthread_cond_signal(&pager->has_fault);
	pthread_mutex_unlock(&pager->gate);
	ldma_signal(pager->stop_fd);
}

static int start(struct ldma_pager **ret)
{
	struct ldma_pager *pager = calloc(1, sizeof(*pager));
	int error;

	if (!pager)
		return -ENOMEM;
	ldma_paging_init(&pager->paging, &ops);
	pthread_mutex_init(&pager->gate, NULL);
	pthread_cond_init(&pager->has_fault, NULL);
	pager->pid = getpid();
	pager->users = 1;
	pager->userfault = (struct ldma_userfault){-1, -1};
	pager->stop_fd = ldma_stop_descriptor();
	error = pager->stop_fd < 0 ? pager->stop_fd : ldma_userfault_open(&pager->userfault);
	if (!error)
		error = start_thread(pager, ldma_pager_watch);
	if (!error)
		error = start_thread(pager, ldma_pager_fill);
	if (error) {
		stop(pager);
		ldma_pager_put(pager);
		return error;
	}
	*ret = pager;
	return 0;
}

/* Stops watching the parts of the range that no region covers. Called in the gate. */
void ldma_pager_unwatch(struct ldma_pager *pager, uintptr_t start, uintptr_t end)
{
	while (start < end) {
		uintptr_t next = end;
		bool is_covered = false;

		for (const struct ldma_watched *at = pager->regions; at; at = at->next) {
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
	ldma_pager_put(watched->pager);
	free(watched);
}

static void remove_region(struct ldma_watched *watched)
{
	struct ldma_pager *pager = watched->pager;
	struct ldma_watched **link = &pager->regions;

	pthread_mutex_lock(&pager->gate);
	while (*link != watched)
		link = &(*link)->next;
	*link = watched->next;
	ldma_pager_unwatch(pager, watched->start, watched->end);
	ldma_paged_release(&watched->paged);
	watched->is_closed = true;
	pthread_mutex_unlock(&pager->gate);
	ldma_watched_put(watched);
}

/* Called with `opening` held. */
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
	watched->pager = pager;
	watched->users = 1;
	__atomic_add_fetch(&pager->users, 1, __ATOMIC_RELAXED);
	watched->start = (uintptr_t)memory & ~(LDMA_PAGE - 1);
	watched->end = ((uintptr_t)memory + length + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1);
	pthread_mutex_lock(&pager->gate);
	watched->next = pager->regions;
	pager->regions = watched;
	pthread_mutex_unlock(&pager->gate);
	error = ldma_userfault_register(&pager->userfault, watched->start, watched->end);
	if (error)
		remove_region(watched);
	*ret = watched;
	return error;
}

/* Ends the pager with its last region. Called with `opening` held. */
static void release(void)
{
	struct ldma_pager *pager = current;

	if (pager->regions)
		return;
	current = NULL;
	stop(pager);
	ldma_pager_put(pager);
}

int ldma_pager_open(void *memory, uint64_t length, struct ldma_paged **ret)
{
	struct ldma_watched *watched;
	int error = 0;

	ldma_vanishing_start();
	pthread_mutex_lock(&opening);
	if (current && current->pid != getpid()) { /* the parent's: no threads of it are here */
		ldma_userfault_close(&current->userfault);
		current = NULL;
	}
	if (!current)
		error = start(&current);
	if (!error) {
		error = add_region(current, memory, length, &watched);
		if (error)
			release();
		else
			*ret = &watched->paged;
	}
	pthread_mutex_unlock(&opening);
	return error;
}

void ldma_pager_close(struct ldma_paged *paged)
{
	struct ldma_watched *watched = watched_of(paged);

	if (watched->pager->pid != getpid()) /* a child has only a copy, without threads */
		return;
	pthread_mutex_lock(&opening);
	remove_region(watched);
	release();
	pthread_mutex_unlock(&opening);
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

int ldma_pager_offer(struct ldma_paged *paged, uint64_t offset, uint64_t length)
{
	const struct ldma_watched *watched = watched_of(paged);
	struct ldma_pager *pager = watched->pager;
	uintptr_t start = ((uintptr_t)paged->memory + offset) & ~(LDMA_PAGE - 1);
	uintptr_t end =
		((uintptr_t)paged->memory + offset + length + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1);
	int error;

	/* In the gate, or a region that is closed meanwhile would leave its memory watched. The watcher hears of memory
	 * that goes from here on before a device may use it. */
	ldma_paging_enter(paged->paging);
	error = watched->is_closed ? -EBADF
				   : ldma_userfault_register(&pager->userfault, start, end);
	if (!error)
		ldma_paged_offer_range(paged, offset, length);
	ldma_paging_leave(paged->paging);
	return error;
}

long ldma_pager_sync(struct ldma_paged *paged, uint64_t offset, uint64_t length,
		     struct ldma_pager_range *ret, uint32_t count, uint64_t *ret_end)
{
	const struct ldma_watched *watched = watched_of(paged);
	struct ldma_pager *pager = watched->pager;
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
	for (long i = 0; i < found; i++) {
		uintptr_t from = written[i].start < start ? start : written[i].start;
		uintptr_t to = written[i].end > end ? end : written[i].end;

		ret[i] = (struct ldma_pager_range){from - memory, to - from};
	}
	if (found >= 0)
		*ret_end = (walked < end ? walked : end) - memory;
	return found;
}
