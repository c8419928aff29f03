/* SPDX-License-Identifier: BSD-2-Clause */
/* The order in which calls of the slow path are served. */
#include "rpc/endpoint_internal.h"
#include "tests/base/expect.h"

#include <stdlib.h>

#define CALLS 20

static struct ldma_endpoint greedy, modest, third;
static struct call calls[3][CALLS];
static struct slow_queue queue;

static struct call *queued(struct ldma_endpoint *endpoint, uint32_t of, uint32_t i,
			   enum slow_lane lane)
{
	struct call *call = &calls[of][i];

	call->shown.endpoint = endpoint;
	slow_queue_add(&queue, call, lane);
	return call;
}

static void expect(struct call *call)
{
	EXPECT(slow_queue_take(&queue, false) == call);
}

/* A call waits for one of each other endpoint, however many these have; each endpoint's own are in order. */
static void test_endpoints_take_turns(void)
{
	for (uint32_t i = 0; i < CALLS; i++)
		queued(&greedy, 0, i, SLOW_PLAIN);
	expect(&calls[0][0]);
	queued(&modest, 1, 0, SLOW_PLAIN);
	queued(&modest, 1, 1, SLOW_PLAIN);
	expect(&calls[0][1]);
	expect(&calls[1][0]);
	queued(&third, 2, 0, SLOW_PLAIN);
	expect(&calls[0][2]);
	expect(&calls[1][1]);
	expect(&calls[2][0]);
	for (uint32_t i = 3; i < CALLS; i++)
		expect(&calls[0][i]);
	expect(NULL);
	EXPECT(!greedy.slow[SLOW_PLAIN].calls.first && !queue.lanes[SLOW_PLAIN].first);
}

/* Control traffic goes past the rest, and neither kind keeps the other from the threads. */
static void test_lanes_take_turns(void)
{
	for (uint32_t i = 0; i < CALLS / 2; i++)
		queued(&greedy, 0, i, SLOW_PLAIN);
	for (uint32_t i = CALLS / 2; i < CALLS; i++)
		queued(&greedy, 0, i, SLOW_CONTROL);
	queue.turn = SLOW_CONTROL;
	for (uint32_t i = 0; i < CALLS / 2; i++) {
		expect(&calls[0][CALLS / 2 + i]);
		expect(&calls[0][i]);
	}
	expect(NULL);
}

static void test_a_thread_for_control_takes_nothing_else(void)
{
	queued(&greedy, 0, 0, SLOW_PLAIN);
	EXPECT(slow_queue_has(&queue, false) && !slow_queue_has(&queue, true));
	EXPECT(!slow_queue_take(&queue, true));
	queued(&modest, 1, 0, SLOW_CONTROL);
	queued(&third, 2, 0, SLOW_CONTROL);
	EXPECT(slow_queue_take(&queue, true) == &calls[1][0]);
	EXPECT(slow_queue_take(&queue, true) == &calls[2][0]);
	EXPECT(!slow_queue_take(&queue, true));
	expect(&calls[0][0]);
}

int main(void)
{
	test_endpoints_take_turns();
	test_lanes_take_turns();
	test_a_thread_for_control_takes_nothing_else();
	return 0;
}
