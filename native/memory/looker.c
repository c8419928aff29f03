/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at pages for listeners that ask for it, in a thread of its own: a look may take long, which no thread that unmaps
 * may wait for. */
#include <string.h>
#include <time.h>

#include "memory/pager_internal.h"

#define ATTEMPTS                                                                                   \
	4 /* at a block that changes while it is looked at; then it waits for the next look */

/* New mappings are watched before anybody hears of them. What cannot be watched is left to further looks. */
static void watch(struct ldma_pager *pager, uintptr_t start, uintptr_t end)
{
	for (const struct ldma_listener *at = pager->listeners; at; at = at->next) {
		uintptr_t from = start > at->start ? start : at->start;
		uintptr_t to = end < at->end ? end : at->end;

		if (!at->is_device && from < to)
			ldma_userfault_register(&pager->userfault, from, to);
	}
}

static void tell(void *context, const struct ldma_memory_event *event)
{
	struct ldma_pager *pager = context;

	if (event->cause == LDMA_CAUSE_mapped)
		watch(pager, event->start, event->end);
	ldma_listeners_tell(pager, *event);
}

void ldma_pager_apply_told(struct ldma_pager *pager)
{
	struct ldma_look_told told[LDMA_LOOK_TOLD];
	uint32_t count;

	pthread_mutex_lock(&pager->gate);
	count = pager->looks.told_count;
	memcpy(told, pager->looks.told, count * sizeof(told[0]));
	pager->looks.told_count = 0;
	pthread_mutex_unlock(&pager->gate);
	ldma_looks_apply(&pager->looks, told, count);
}

/* The gate is taken only where something has changed. */
static void look_at_block(struct ldma_pager *pager, struct ldma_look_block *block)
{
	uint64_t now[LDMA_LOOK_PAGES];
	bool is_done = false;

	for (int attempt = 0; attempt < ATTEMPTS && !is_done; attempt++) {
		ldma_pager_apply_told(pager);
		ldma_looks_read(&pager->looks, block, now);
		if (!memcmp(now, block->pages, sizeof(now)))
			return;
		pthread_mutex_lock(&pager->gate);
		is_done = !pager->looks.told_count; /* nothing was told since it was read */
		if (is_done)
			ldma_looks_compare(block, now, tell, pager);
		pthread_mutex_unlock(&pager->gate);
	}
}

void ldma_pager_look_at(struct ldma_pager *pager, uintptr_t start, uintptr_t end)
{
	const uintptr_t size = LDMA_LOOK_PAGES * LDMA_PAGE;
	uintptr_t at = start & ~(size - 1);
	struct ldma_look_block *block;

	do {
		pthread_mutex_lock(&pager->looks.mutex);
		block = ldma_looks_from(&pager->looks, at);
		if (block && block->base < end) {
			look_at_block(pager, block);
			at = block->base + size;
		} else {
			block = NULL;
		}
		pthread_mutex_unlock(&pager->looks.mutex);
	} while (block && !__atomic_load_n(&pager->is_stopping, __ATOMIC_RELAXED));
}

void ldma_memory_look(void)
{
	struct ldma_pager *pager = ldma_pager_lock_current();

	if (pager)
		__atomic_add_fetch(&pager->users, 1, __ATOMIC_RELAXED);
	ldma_pager_unlock();
	if (!pager)
		return;
	pthread_mutex_lock(&pager->gate); /* what was reported is being told */
	pthread_mutex_unlock(&pager->gate);
	ldma_pager_look_at(pager, 0, UINTPTR_MAX);
	ldma_pager_put(pager);
}

/* Returns the shortest period of all listeners, or 0 if none wants to look. */
static uint64_t shortest_period(const struct ldma_pager *pager)
{
	uint64_t shortest = 0;

	for (const struct ldma_listener *at = pager->listeners; at; at = at->next)
		if (at->period_ns && (!shortest || at->period_ns < shortest))
			shortest = at->period_ns;
	return shortest;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void *ldma_pager_look(void *arg)
{
	struct ldma_pager *pager = arg;
	uint64_t looked_ns = now_ns();

	pthread_setname_np(pthread_self(), "ldma-looker");
	pthread_mutex_lock(&pager->gate);
	while (!pager->is_stopping) {
		uint64_t period = shortest_period(pager);
		struct timespec until = ldma_timespec(looked_ns + period);

		if (!period) {
			pthread_cond_wait(&pager->may_look, &pager->gate);
		} else if (now_ns() < looked_ns + period) {
			pthread_cond_timedwait(&pager->may_look, &pager->gate, &until);
		} else {
			pthread_mutex_unlock(&pager->gate);
			ldma_pager_look_at(pager, 0, UINTPTR_MAX);
			looked_ns = now_ns();
			pthread_mutex_lock(&pager->gate);
		}
	}
	pthread_mutex_unlock(&pager->gate);
	ldma_pager_put(pager);
	return NULL;
}
