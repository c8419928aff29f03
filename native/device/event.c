/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/event.h"

#include <errno.h>
#include <stdlib.h>

int ldma_events_init(struct ldma_events *events, uint32_t capacity)
{
	uint32_t size = 1;

	while (size < capacity)
		size *= 2;
	*events = (struct ldma_events){.mask = size - 1};
	events->ring = calloc(size, sizeof(*events->ring));
	return events->ring ? 0 : -ENOMEM;
}

void ldma_events_destroy(struct ldma_events *events)
{
	free(events->ring);
	*events = (struct ldma_events){0};
}

bool ldma_events_push(struct ldma_events *events, const struct ldma_event *event)
{
	if (events->tail - events->head > events->mask)
		return false;
	events->ring[events->tail++ & events->mask] = *event;
	return true;
}

bool ldma_events_poll(struct ldma_events *events, struct ldma_event *ret)
{
	if (events->head == events->tail)
		return false;
	*ret = events->ring[events->head++ & events->mask];
	return true;
}

void ldma_events_forget(struct ldma_events *events, const void *object)
{
	uint32_t kept = events->head;

	for (uint32_t i = events->head; i != events->tail; i++) {
		const struct ldma_event *event = &events->ring[i & events->mask];

		if (event->object != object)
			events->ring[kept++ & events->mask] = *event;
	}
	events->tail = kept;
}
