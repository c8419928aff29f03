/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/hook_queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/wake.h"
#include "memory/paging.h"

/* The mutex is held to copy events, and for nothing that could wait: hooks take it. */
struct ldma_hook_queue {
	pthread_mutex_t mutex;
	struct ldma_queue_end *ends; /* in the order in which they were attached */
	uint64_t head, tail;
	uint32_t capacity;
	bool is_losing; /* since it was full */
	int fd;
	struct ldma_queued entries[];
};

int ldma_hook_queue_create(uint32_t capacity, struct ldma_hook_queue **ret)
{
	struct ldma_hook_queue *queue;

	if (!capacity)
		return -EINVAL;
	queue = calloc(1, sizeof(*queue) + capacity * sizeof(queue->entries[0]));
	if (!queue)
		return -ENOMEM;
	queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->fd < 0) {
		free(queue);
		return -errno;
	}
	queue->capacity = capacity;
	pthread_mutex_init(&queue->mutex, NULL);
	*ret = queue;
	return 0;
}

void ldma_hook_queue_destroy(struct ldma_hook_queue *queue)
{
	if (!queue)
		return;
	close(queue->fd);
	pthread_mutex_destroy(&queue->mutex);
	free(queue);
}

void ldma_hook_queue_attach(struct ldma_hook_queue *queue, struct ldma_queue_end *end, uint64_t tag,
			    const void *memory, uint64_t length)
{
	struct ldma_queue_end **link = &queue->ends;

	*end = (struct ldma_queue_end){
		.queue = queue,
		.tag = tag,
		.start = (uintptr_t)memory & ~(LDMA_PAGE - 1),
		.end = ((uintptr_t)memory + length + LDMA_PAGE - 1) & ~(LDMA_PAGE - 1),
	};
	pthread_mutex_lock(&queue->mutex);
	while (*link)
		link = &(*link)->next;
	*link = end;
	pthread_mutex_unlock(&queue->mutex);
}

void ldma_hook_queue_detach(struct ldma_queue_end *end)
{
	struct ldma_hook_queue *queue = end->queue;
	struct ldma_queue_end **link = &queue->ends;

	pthread_mutex_lock(&queue->mutex);
	while (*link != end)
		link = &(*link)->next;
	*link = end->next;
	pthread_mutex_unlock(&queue->mutex);
}

/* The hook of every kind. */
static void write_down(void *arg, const struct ldma_memory_event *event)
{
	struct ldma_queue_end *end = arg;
	struct ldma_hook_queue *queue = end->queue;
	bool was_empty;

	pthread_mutex_lock(&queue->mutex);
	was_empty = queue->head == queue->tail;
	queue->is_losing |= queue->tail - queue->head == queue->capacity;
	if (!queue->is_losing) {
		queue->entries[queue->tail++ % queue->capacity] =
			(struct ldma_queued){end->tag, *event};
	} else if (event->hook == LDMA_HOOK_release) {
		end->is_ending = true;
		end->release = *event;
	} else {
		end->last_lost = event->number;
		end->lost++;
		end->lost_ever++;
	}
	pthread_mutex_unlock(&queue->mutex);
	if (was_empty)
		ldma_signal(queue->fd);
}

const struct ldma_hooks ldma_queue_hooks = {
#define MEMORY_HOOK(name) .name = write_down,
#include "memory/hooks.def"
};

static struct ldma_queued loss_of(struct ldma_queue_end *end)
{
	struct ldma_memory_event event = {
		.number = end->last_lost,
		.start = end->start,
		.end = end->end,
		.lost = end->lost,
		.hook = LDMA_HOOK_invalidate_range,
		.cause = LDMA_CAUSE_lost,
	};

	end->lost = 0;
	return (struct ldma_queued){end->tag, event};
}

/* Tells what was lost, once the queue is empty. Called with the mutex. */
static uint32_t take_losses(struct ldma_hook_queue *queue, struct ldma_queued *ret, uint32_t count)
{
	uint32_t taken = 0;

	for (struct ldma_queue_end *end = queue->ends; end; end = end->next) {
		if (end->lost && taken < count)
			ret[taken++] = loss_of(end);
		if (end->is_ending && taken < count) {
			ret[taken++] = (struct ldma_queued){end->tag, end->release};
			end->is_ending = false;
		}
	}
	queue->is_losing = taken == count; /* perhaps there are more */
	return taken;
}

uint32_t ldma_hook_queue_take(struct ldma_hook_queue *queue, struct ldma_queued *ret,
			      uint32_t count)
{
	uint32_t taken = 0;

	pthread_mutex_lock(&queue->mutex);
	while (taken < count && queue->head != queue->tail)
		ret[taken++] = queue->entries[queue->head++ % queue->capacity];
	if (taken < count && queue->is_losing)
		taken += take_losses(queue, ret + taken, count - taken);
	pthread_mutex_unlock(&queue->mutex);
	return taken;
}

void ldma_hook_queue_wait(struct ldma_hook_queue *queue)
{
	struct pollfd fd = {.fd = queue->fd, .events = POLLIN};

	poll(&fd, 1, -1);
	ldma_unsignal(queue->fd);
}

uint64_t ldma_queue_end_lost(struct ldma_queue_end *end)
{
	uint64_t lost;

	pthread_mutex_lock(&end->queue->mutex);
	lost = end->lost_ever;
	pthread_mutex_unlock(&end->queue->mutex);
	return lost;
}
