/* SPDX-License-Identifier: BSD-2-Clause */
/* The pager of the process: it begins with the first listener, and ends with the last. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory/pager_internal.h"
#include "memory/vanishing.h"

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct ldma_pager *current; /* of this process, while it has listeners */
static uint32_t forks, forks_told; /* of this process */

static struct ldma_pager *pager_of(struct ldma_paging *paging)
{
	return (struct ldma_pager *)((char *)paging - offsetof(struct ldma_pager, paging));
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
	ldma_looks_destroy(&pager->looks);
	close(pager->wake_fd);
	pthread_cond_destroy(&pager->may_look);
	pthread_cond_destroy(&pager->has_fault);
	pthread_mutex_destroy(&pager->gate);
	free(pager);
}

/* Starts a thread with all signals blocked. No handler of the program may run there: it might free memory, and wait for
 * the thread that it interrupts. */
int ldma_pager_start_thread(struct ldma_pager *pager, void *(*run)(void *))
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
	__atomic_store_n(&pager->is_stopping, true, __ATOMIC_RELAXED);
	pthread_cond_signal(&pager->has_fault);
	pthread_cond_signal(&pager->may_look);
	pthread_mutex_unlock(&pager->gate);
	ldma_signal(pager->wake_fd);
}

static int start(struct ldma_pager **ret)
{
	struct ldma_pager *pager = calloc(1, sizeof(*pager));
	pthread_condattr_t monotonic;
	int error;

	if (!pager)
		return -ENOMEM;
	ldma_looks_init(&pager->looks);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&pager->may_look, &monotonic);
	pthread_condattr_destroy(&monotonic);
	ldma_paging_init(&pager->paging, &ops);
	pthread_mutex_init(&pager->gate, NULL);
	pthread_cond_init(&pager->has_fault, NULL);
	pager->pid = getpid();
	pager->users = 1;
	pager->userfault = (struct ldma_userfault){-1, -1};
	pager->wake_fd = ldma_wake_descriptor();
	error = pager->wake_fd < 0 ? pager->wake_fd : ldma_userfault_open(&pager->userfault);
	if (!error)
		error = ldma_pager_start_thread(pager, ldma_pager_watch);
	if (!error)
		error = ldma_pager_start_thread(pager, ldma_pager_fill);
	if (error) {
		stop(pager);
		ldma_pager_put(pager);
		return error;
	}
	*ret = pager;
	return 0;
}

struct ldma_pager *ldma_pager_lock_current(void)
{
	pthread_mutex_lock(&opening);
	if (current && current->pid != getpid()) { /* the parent's: no threads of it are here */
		ldma_userfault_close(&current->userfault);
		current = NULL;
	}
	return current;
}

int ldma_pager_lock(struct ldma_pager **ret)
{
	int error = ldma_pager_lock_current() ? 0 : start(&current);

	*ret = current;
	return error;
}

/* Wakes the watcher. A thread that has the lock meanwhile does it when it unlocks. */
static void tell_forks(void)
{
	while (__atomic_load_n(&forks, __ATOMIC_SEQ_CST) !=
		       __atomic_load_n(&forks_told, __ATOMIC_SEQ_CST) &&
	       !pthread_mutex_trylock(&opening)) {
		__atomic_store_n(&forks_told, __atomic_load_n(&forks, __ATOMIC_SEQ_CST),
				 __ATOMIC_SEQ_CST);
		if (current && current->pid == getpid()) {
			__atomic_store_n(&current->is_forked, true, __ATOMIC_RELEASE);
			ldma_signal(current->wake_fd);
		}
		pthread_mutex_unlock(&opening);
	}
}

void ldma_pager_note_fork(void)
{
	__atomic_add_fetch(&forks, 1, __ATOMIC_SEQ_CST);
	tell_forks();
}

void ldma_pager_unlock(void)
{
	struct ldma_pager *pager = current;

	if (pager && !pager->listeners) {
		current = NULL;
		stop(pager);
		ldma_pager_put(pager);
	}
	pthread_mutex_unlock(&opening);
	tell_forks();
}
