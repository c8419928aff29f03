/* SPDX-License-Identifier: BSD-2-Clause */
/* A listener that is slower than the events that it hears of: it delays nobody, and hears of all of them in their order.
 * It looks at the pages, too. */
#ifndef TESTS_PORT_SLOW_LISTENER_H
#define TESTS_PORT_SLOW_LISTENER_H

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "memory/hook_queue.h"

#define SLOW_US 2000 /* for each event */
#define SLOW_PERIOD_NS 5000000

struct slow_listener {
	struct ldma_hook_queue *queue;
	struct ldma_queue_end end;
	struct ldma_listener *quick, *slow;
	pthread_t thread;
	bool is_stopping;
	uint64_t told; /* to a listener that is quick, and was first; in the gate */
	uint64_t last; /* number that it was told */
	uint64_t heard;
};

static void hear_quickly(void *arg, const struct ldma_memory_event *event)
{
	struct slow_listener *listener = arg;

	assert(event->number > listener->last);
	listener->last = event->number;
	listener->told++;
}

static void *hear_slowly(void *arg)
{
	struct slow_listener *listener = arg;
	uint64_t last = 0;

	for (;;) {
		struct ldma_queued got;

		if (!ldma_hook_queue_take(listener->queue, &got, 1)) {
			ldma_hook_queue_wait(listener->queue);
			continue;
		}
		assert(got.event.number > last && got.event.cause != LDMA_CAUSE_lost);
		last = got.event.number;
		listener->heard++;
		if (got.event.hook == LDMA_HOOK_release)
			return NULL;
		if (!__atomic_load_n(&listener->is_stopping, __ATOMIC_RELAXED))
			usleep(SLOW_US);
	}
}

static void slow_listener_start(struct slow_listener *listener, void *memory, uint64_t length)
{
	static const struct ldma_hooks quick = {
#define MEMORY_HOOK(name) .name = hear_quickly,
#include "memory/hooks.def"
	};

	*listener = (struct slow_listener){0};
	assert(!ldma_hook_queue_create(1 << 20, &listener->queue));
	ldma_hook_queue_attach(listener->queue, &listener->end, 0, memory, length);
	assert(!ldma_memory_listen(memory, length, 0, &quick, listener, &listener->quick));
	assert(!ldma_memory_listen(memory, length, SLOW_PERIOD_NS, &ldma_queue_hooks,
				   &listener->end, &listener->slow));
	assert(!pthread_create(&listener->thread, NULL, hear_slowly, listener));
}

/* What the slow one heard is what the quick one was told, but for what came before both listened. */
static void slow_listener_stop(struct slow_listener *listener)
{
	__atomic_store_n(&listener->is_stopping, true, __ATOMIC_RELAXED);
	ldma_memory_look();
	ldma_memory_unlisten(listener->slow);
	ldma_memory_unlisten(listener->quick);
	pthread_join(listener->thread, NULL);
	printf("%lu events told, %lu heard slowly\n", (unsigned long)listener->told,
	       (unsigned long)listener->heard);
	assert(listener->heard == listener->told && listener->heard > 1);
	ldma_hook_queue_detach(&listener->end);
	ldma_hook_queue_destroy(listener->queue);
}

#endif
