/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue of events for listeners that may take their time: their hooks only write the event down, and a thread of the
 * owner's takes it. A queue may serve several listeners; it keeps the order in which their hooks were called.
 *
 * A full queue loses events. From the first one on it takes none until it has been emptied. Then each listener that has
 * lost some gets one event that invalidates its whole range (LDMA_CAUSE_lost), and after it those that come. A release
 * is never lost. */
#ifndef LDMA_HOOK_QUEUE_H
#define LDMA_HOOK_QUEUE_H

#include "memory/hooks.h"

struct ldma_hook_queue;

/* A listener's end of the queue: the arg of ldma_queue_hooks. The caller's memory. */
struct ldma_queue_end {
	struct ldma_hook_queue *queue;
	struct ldma_queue_end *next;
	uint64_t tag;  /* says whose events they are */
	uint64_t lost; /* events, since they were last told; the last one has number last_lost */
	uint64_t lost_ever; /* events */
	uint64_t last_lost;
	uint64_t start, end;
	struct ldma_memory_event release; /* if is_ending: it found no room */
	bool is_ending;
};

struct ldma_queued {
	uint64_t tag;
	struct ldma_memory_event event;
};

extern const struct ldma_hooks ldma_queue_hooks;

/* Makes a queue for as many events. Returns 0, -ENOMEM, -EINVAL or -EMFILE. */
int ldma_hook_queue_create(uint32_t capacity, struct ldma_hook_queue **ret);
void ldma_hook_queue_destroy(struct ldma_hook_queue *queue);

/* Adds an end, before its listener begins to listen, and removes it, after it has ended. An end says which range is lost
 * if some event is. */
void ldma_hook_queue_attach(struct ldma_hook_queue *queue, struct ldma_queue_end *end, uint64_t tag,
			    const void *memory, uint64_t length);
void ldma_hook_queue_detach(struct ldma_queue_end *end);

/* Takes up to count events, the oldest first. Returns how many. One thread calls it. */
uint32_t ldma_hook_queue_take(struct ldma_hook_queue *queue, struct ldma_queued *ret,
			      uint32_t count);

/* Waits until there may be an event. */
void ldma_hook_queue_wait(struct ldma_hook_queue *queue);

/* Returns how many events the end has lost so far. */
uint64_t ldma_queue_end_lost(struct ldma_queue_end *end);

#endif
