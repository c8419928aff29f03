/* Receives and what peers are granted. Those who are in progress count, since each leaves its place to a new Receive. */
#include <errno.h>
#include <stdlib.h>

#include "endpoint_internal.h"

#define BLOCK_REQUESTS 16

static void add_requests(struct ldma_endpoint *endpoint)
{
	uint32_t room = 2 * endpoint->config.credits_max - endpoint->request_count;
	uint32_t count = room < BLOCK_REQUESTS ? room : BLOCK_REQUESTS;
	struct block *block;
	struct request *requests;

	if (!count)
		return;
	block = calloc(1, sizeof(*block) + count * sizeof(struct request));
	if (!block)
		return;
	block->next = endpoint->blocks;
	endpoint->blocks = block;
	endpoint->request_count += count;
	requests = (struct request *)(block + 1);
	for (uint32_t i = 0; i < count; i++) {
		requests[i].call.endpoint = endpoint;
		requests[i].next = endpoint->free_requests;
		endpoint->free_requests = &requests[i];
	}
}

struct request *request_take(struct ldma_endpoint *endpoint)
{
	struct request *request;

	if (!endpoint->free_requests)
		add_requests(endpoint);
	request = endpoint->free_requests;
	if (request)
		endpoint->free_requests = request->next;
	return request;
}

static uint32_t in_use(const struct ldma_endpoint *endpoint)
{
	return endpoint->stats.posted + endpoint->to_post_count + endpoint->stats.in_progress;
}

/* 0, or what the pool says; then the endpoint waits for a buffer. */
static int take_buffer(struct ldma_endpoint *endpoint, struct ldma_pool_buffer *ret)
{
	int result;

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
	while (!endpoint->is_broken && in_use(endpoint) < endpoint->target) {
		struct request *request = request_take(endpoint);

		if (!request)
			return;
		if (take_buffer(endpoint, &request->buffer)) {
			request->next = endpoint->free_requests;
			endpoint->free_requests = request;
			return;
		}
		list_append(&endpoint->to_post, request);
		endpoint->to_post_count++;
	}
}

void credits_receive_buffer(struct ldma_pool_waiter *waiter)
{
	struct ldma_endpoint *endpoint = CONTAINER(waiter, struct ldma_endpoint, receive_waiter);
	struct ldma_pool_buffer buffer = waiter->buffer;
	bool is_used = false, is_mine = !waiter->result;

	ldma_lock(&endpoint->lock);
	endpoint->is_awaiting_receive = false;
	if (is_mine && !endpoint->is_broken && in_use(endpoint) < endpoint->target) {
		struct request *request = request_take(endpoint);

		if (request) {
			request->buffer = buffer;
			list_append(&endpoint->to_post, request);
			endpoint->to_post_count++;
			is_used = true;
			credits_top_up(endpoint);
		}
	}
	ldma_unlock(&endpoint->lock);
	if (is_used)
		outbox_submit(endpoint, 0);
	else if (is_mine)
		ldma_pool_return(endpoint->config.receive_pool, buffer.handle);
	endpoint_check_over(endpoint);
	ldma_endpoint_put(endpoint);
}

/* Never 0: the peer could not ask again (RFC 8166, 3.3.1). Where nothing is left, the reply's own buffer is the next. */
uint32_t credits_granted(const struct ldma_endpoint *endpoint)
{
	uint32_t backed = in_use(endpoint);
	uint32_t granted = backed < endpoint->target ? backed : endpoint->target;

	return granted ? granted : 1;
}
