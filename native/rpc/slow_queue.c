/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/slow_queue.h"

#include "rpc/endpoint_internal.h"

static void append(struct slow_queue *queue, struct ldma_endpoint *endpoint, enum slow_lane lane)
{
	endpoint->slow[lane].next = NULL;
	if (queue->lanes[lane].first)
		queue->lanes[lane].last->slow[lane].next = endpoint;
	else
		queue->lanes[lane].first = endpoint;
	queue->lanes[lane].last = endpoint;
}

void slow_queue_add(struct slow_queue *queue, struct call *call, enum slow_lane lane)
{
	struct ldma_endpoint *endpoint = call->shown.endpoint;

	if (!endpoint->slow[lane].calls.first)
		append(queue, endpoint, lane);
	list_append(&endpoint->slow[lane].calls, call);
}

bool slow_queue_has(const struct slow_queue *queue, bool only_control)
{
	return queue->lanes[SLOW_CONTROL].first ||
	       (!only_control && queue->lanes[SLOW_PLAIN].first);
}

/* The endpoint goes behind the others. Its calls hold it: without one it may be gone. */
static struct call *take(struct slow_queue *queue, enum slow_lane lane)
{
	struct ldma_endpoint *endpoint = queue->lanes[lane].first;
	struct call *call = list_take(&endpoint->slow[lane].calls);

	queue->lanes[lane].first = endpoint->slow[lane].next;
	if (endpoint->slow[lane].calls.first)
		append(queue, endpoint, lane);
	return call;
}

struct call *slow_queue_take(struct slow_queue *queue, bool only_control)
{
	enum slow_lane lane = only_control ? SLOW_CONTROL : queue->turn;

	if (!slow_queue_has(queue, only_control))
		return NULL;
	if (!queue->lanes[lane].first)
		lane = lane == SLOW_PLAIN ? SLOW_CONTROL : SLOW_PLAIN;
	if (!only_control)
		queue->turn = lane == SLOW_PLAIN ? SLOW_CONTROL : SLOW_PLAIN;
	return take(queue, lane);
}
