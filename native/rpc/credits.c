/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives, and the credits that peers are granted. Calls in progress count, since each leaves its place to a new
 * Receive. */
#include <errno.h>
#include <stdlib.h>

#include "rpc/endpoint_internal.h"

#define BLOCK_CALLS 16

static void add_calls(struct ldma_endpoint *endpoint)
{
	uint32_t most = 2 * endpoint->config.credits_max + LDMA_ENDPOINT_SPARE_RECEIVES;
	uint32_t room = most - endpoint->call_count;
	uint32_t count = room < BLOCK_CALLS ? room : BLOCK_CALLS;
	struct block *block;
	struct call *calls;

	if (!count)
		return;
	block = calloc(1, sizeof(*block) + count * sizeof(struct call));
	if (!block)
		return;
	block->next = endpoint->blocks;
	endpoint->blocks = block;
	endpoint->call_count += count;
	calls = (struct call *)(block + 1);
	for (uint32_t i = 0; i < count; i++) {
		calls[i].shown.endpoint = endpoint;
		calls[i].next = endpoint->free_calls;
		endpoint->free_calls = &calls[i];
	}
}

struct call *call_take(struct ldma_endpoint *endpoint)
{
	struct call *call;

	if (!endpoint->free_calls)
		add_calls(endpoint);
	call = endpoint->free_calls;
	if (call)
		endpoint->free_calls = call->next;
	return call;
}

static uint32_t in_use(const struct ldma_endpoint *endpoint)
{
	return endpoint->stats.posted + endpoint->to_post_count + endpoint->stats.in_progress;
}

/* Takes a buffer. Returns 0, or the pool's error; with -EINPROGRESS the endpoint waits for a buffer. It does not wait,
 * nor count itself late, for the Receives beyond the credits: these have buffers that no reply needs just now. */
static int take_buffer(struct ldma_endpoint *endpoint, struct ldma_pool_buffer *ret)
{
	int result;

	if (in_use(endpoint) >= endpoint->target)
		return ldma_pool_take(endpoint->config.receive_pool, LDMA_POOL_DATA, ret);
	if (endpoint->is_awaiting_receive)
		return -EAGAIN;
	endpoint->receive_waiter.complete = credits_receive_buffer;
	result = ldma_pool_wait(endpoint->config.receive_pool, LDMA_POOL_DATA,
				&endpoint->receive_waiter);
	if (!result)
		*ret = endpoint->receive_waiter.buffer;
	if (result == -EINPROGRESS) {
		endpoint->stats.receives_late++;
		endpoint->is_awaiting_receive = true;
		endpoint_get(endpoint);
	}
	return result;
}

void credits_top_up(struct ldma_endpoint *endpoint)
{
	uint32_t most = endpoint->target + LDMA_ENDPOINT_SPARE_RECEIVES;

	while (!endpoint->is_broken && in_use(endpoint) < most) {
		struct call *call = call_take(endpoint);

		if (!call)
			return;
		if (take_buffer(endpoint, &call->buffer)) {
			call->next = endpoint->free_calls;
			endpoint->free_calls = call;
			return;
		}
		list_append(&endpoint->to_post, call);
		endpoint->to_post_count++;
	}
}

void credits_receive_buffer(struct ldma_pool_waiter *waiter, void *batch)
{
	struct ldma_endpoint *endpoint = CONTAINER(waiter, struct ldma_endpoint, receive_waiter);
	struct ldma_pool_buffer buffer = waiter->buffer;
	bool is_used = false, is_mine = !waiter->result;

	ldma_lock(&endpoint->lock);
	endpoint->is_awaiting_receive = false;
	if (is_mine && !endpoint->is_broken && in_use(endpoint) < endpoint->target) {
		struct call *call = call_take(endpoint);

		if (call) {
			call->buffer = buffer;
			list_append(&endpoint->to_post, call);
			endpoint->to_post_count++;
			is_used = true;
			credits_top_up(endpoint);
		}
	}
	ldma_unlock(&endpoint->lock);
	if (is_used)
		outbox_submit(endpoint, 0, batch);
	else if (is_mine)
		ldma_pool_return_with(endpoint->config.receive_pool, buffer.handle, batch);
	endpoint_check_over(endpoint);
	ldma_endpoint_put(endpoint);
}

/* It is never 0, or the peer could not ask again (RFC 8166, 3.3.1): if no Receive is left, the reply's own buffer
 * becomes the next one. */
uint32_t credits_granted(const struct ldma_endpoint *endpoint)
{
	uint32_t backed = in_use(endpoint);
	uint32_t granted = backed < endpoint->target ? backed : endpoint->target;

	return granted ? granted : 1;
}
