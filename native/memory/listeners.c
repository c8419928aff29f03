/* SPDX-License-Identifier: BSD-2-Clause */
/* The listeners to what happens to memory: how events reach them, and how they come and go. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory/pager_internal.h"

typedef void hook_function(void *arg, const struct ldma_memory_event *event);

static hook_function *hook_of(const struct ldma_hooks *hooks, uint32_t hook)
{
	switch (hook) {
#define MEMORY_HOOK(name)                                                                          \
	case LDMA_HOOK_##name:                                                                     \
		return hooks->name;
#include "memory/hooks.def"
	}
	return NULL;
}

static bool is_range_hook(uint32_t hook)
{
	return LDMA_HOOK_sync_range <= hook && hook <= LDMA_HOOK_update_range;
}

/* Calls the listener's hook for the event, which is within its range. */
static void call(const struct ldma_listener *listener, struct ldma_memory_event event)
{
	const uint32_t to_page = LDMA_HOOK_sync_page - LDMA_HOOK_sync_range;
	hook_function *hook = NULL;

	if (is_range_hook(event.hook) && event.end - event.start == LDMA_PAGE) {
		hook = hook_of(listener->hooks, event.hook + to_page);
		if (hook)
			event.hook += to_page;
	}
	if (!hook)
		hook = hook_of(listener->hooks, event.hook);
	if (hook)
		hook(listener->arg, &event);
}

/* Notes what looking need not find. */
static void note(struct ldma_pager *pager, const struct ldma_memory_event *event)
{
	enum ldma_look_mark mark = LDMA_LOOK_GONE;

	switch (event->cause) {
	case LDMA_CAUSE_removed:
		mark = LDMA_LOOK_EMPTY;
		break;
	case LDMA_CAUSE_unmapped:
		break;
	case LDMA_CAUSE_remapped:
		if (event->hook == LDMA_HOOK_update_range)
			mark = LDMA_LOOK_UNKNOWN;
		break;
	case LDMA_CAUSE_offered:
		mark = LDMA_LOOK_UNKNOWN;
		break;
	default:
		return;
	}
	if (pager->has_looker)
		ldma_looks_note(&pager->looks, event->start, event->end, mark);
}

void ldma_listeners_tell(struct ldma_pager *pager, struct ldma_memory_event event)
{
	event.number = ++pager->events;
	note(pager, &event);
	for (const struct ldma_listener *at = pager->listeners; at; at = at->next) {
		struct ldma_memory_event part = event;

		if (at->is_released || event.end <= at->start || at->end <= event.start)
			continue;
		part.start = event.start > at->start ? event.start : at->start;
		part.end = event.end < at->end ? event.end : at->end;
		if (event.to)
			part.to += part.start - event.start;
		call(at, part);
	}
}

void ldma_listener_add(struct ldma_listener *listener)
{
	struct ldma_listener **link = &listener->pager->listeners;

	while (*link && ((*link)->is_device || !listener->is_device))
		link = &(*link)->next;
	listener->next = *link;
	*link = listener;
	__atomic_add_fetch(&listener->pager->users, 1, __ATOMIC_RELAXED);
}

void ldma_listener_release(struct ldma_listener *listener, enum ldma_cause cause)
{
	struct ldma_memory_event event = {
		.number = ++listener->pager->events,
		.start = listener->start,
		.end = listener->end,
		.hook = LDMA_HOOK_release,
		.cause = cause,
	};

	if (listener->is_released)
		return;
	/* A region goes on until it is closed: its device may still run when exit() is called. */
	listener->is_released = !listener->is_device || cause == LDMA_CAUSE_closed;
	call(listener, event);
}

void ldma_listener_remove(struct ldma_listener *listener)
{
	struct ldma_listener **link = &listener->pager->listeners;

	while (*link != listener)
		link = &(*link)->next;
	*link = listener->next;
	ldma_pager_unwatch(listener->pager, listener->start, listener->end);
	ldma_listener_release(listener, LDMA_CAUSE_closed);
}

static pid_t listening; /* the process whose exit and forks are told */

static void tell_exit(void)
{
	if (listening ==
	    getpid()) /* a child's memory is its own, and the lock may be held for ever */
		ldma_memory_exit();
}

static void start_telling(void)
{
	listening = getpid();
	atexit(tell_exit);
	pthread_atfork(NULL, ldma_pager_note_fork, NULL);
}

void ldma_memory_exit(void)
{
	struct ldma_pager *pager = ldma_pager_lock_current();

	if (pager) {
		pthread_mutex_lock(&pager->gate);
		for (struct ldma_listener *at = pager->listeners; at; at = at->next)
			ldma_listener_release(at, LDMA_CAUSE_exited);
		pthread_mutex_unlock(&pager->gate);
	}
	ldma_pager_unlock();
}

/* Has the listener's pages looked at. Called with the pager locked. */
static int begin_looking(struct ldma_listener *listener)
{
	struct ldma_pager *pager = listener->pager;
	int error = 0;

	if (!pager->has_looker)
		error = ldma_pager_start_thread(pager, ldma_pager_look);
	if (error)
		return error;
	pthread_mutex_lock(&pager->looks.mutex);
	if (!pager->has_looker)
		ldma_looks_open(&pager->looks);
	ldma_pager_apply_told(pager); /* it is about what was looked at before */
	error = ldma_looks_add(&pager->looks, listener->start, listener->end);
	pthread_mutex_unlock(&pager->looks.mutex);
	pthread_mutex_lock(&pager->gate);
	pager->has_looker = true;
	if (!error)
		listener->period_ns = listener->period_asked_ns;
	pthread_cond_signal(&pager->may_look);
	pthread_mutex_unlock(&pager->gate);
	if (!error) /* from now on changes are found */
		ldma_pager_look_at(pager, listener->start, listener->end);
	return error;
}

static void remove_listener(struct ldma_listener *listener)
{
	struct ldma_pager *pager = listener->pager;

	pthread_mutex_lock(&pager->gate);
	ldma_listener_remove(listener);
	pthread_mutex_unlock(&pager->gate);
	if (listener->period_ns) {
		pthread_mutex_lock(&pager->looks.mutex);
		ldma_looks_remove(&pager->looks, listener->start, listener->end);
		pthread_mutex_unlock(&pager->looks.mutex);
	}
	free(listener);
	ldma_pager_put(pager);
}

static int begin(struct ldma_pager *pager, struct ldma_listener *listener)
{
	int error;

	listener->pager = pager;
	pthread_mutex_lock(&pager->gate);
	ldma_listener_add(listener);
	pthread_mutex_unlock(&pager->gate);
	error = ldma_userfault_register(&pager->userfault, listener->start, listener->end);
	if (!error && listener->period_asked_ns)
		error = begin_looking(listener);
	if (error) {
		listener->is_released = true; /* it never listened */
		remove_listener(listener);
	}
	return error;
}

int ldma_memory_listen(void *memory, uint64_t length, uint64_t period_ns,
		       const struct ldma_hooks *hooks, void *arg, struct ldma_listener **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uintptr_t start = (uintptr_t)memory;
	struct ldma_listener *listener;
	struct ldma_pager *pager;
	int error;

	if (!memory || !length || length > UINTPTR_MAX - start - LDMA_PAGE)
		return -EINVAL;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	pthread_once(&once, start_telling);
	__atomic_store_n(&listening, getpid(), __ATOMIC_RELAXED);
	listener->hooks = hooks;
	listener->arg = arg;
	listener->start = start & ~(LDMA_PAGE - 1);
	listener->end = (start + length + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1);
	listener->period_asked_ns = period_ns;
	error = ldma_pager_lock(&pager);
	if (error)
		free(listener);
	else
		error = begin(pager, listener);
	ldma_pager_unlock();
	if (!error)
		*ret = listener;
	return error;
}

void ldma_memory_unlisten(struct ldma_listener *listener)
{
	if (listener->pager->pid != getpid()) /* a child has only a copy, without threads */
		return;
	ldma_pager_lock_current();
	remove_listener(listener);
	ldma_pager_unlock();
}
