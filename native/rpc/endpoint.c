/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/endpoint.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/endpoint_internal.h"

static uint32_t clamped(uint32_t credits, uint32_t most)
{
	if (credits < 1)
		return 1;
	return credits < most ? credits : most;
}

static bool is_valid(const struct ldma_endpoint_config *config)
{
	return config->qp && config->receive_pool && config->data_pool && config->credits &&
	       config->credits <= config->credits_max && config->credits_max <= 1u << 16 &&
	       config->receive_bytes >= config->send_inline &&
	       config->send_inline >= 2 * LDMA_RPCRDMA_ERROR_BYTES && config->data_bytes &&
	       config->message_bytes <= config->gathered_bytes &&
	       config->limits.chunks <= LDMA_RPCRDMA_CHUNKS &&
	       config->limits.segments <= LDMA_RPCRDMA_SEGMENTS;
}

int ldma_endpoint_create(struct ldma_service *service, const struct ldma_endpoint_config *config,
			 struct ldma_endpoint **ret)
{
	struct ldma_endpoint *endpoint;
	int error;

	if (!is_valid(config))
		return -EINVAL;
	endpoint = calloc(1, sizeof(*endpoint));
	if (!endpoint)
		return -ENOMEM;
	endpoint->config = *config;
	endpoint->service = service;
	endpoint->refs = 2; /* the creator's and the service's */
	endpoint->target = config->credits;
	error = service_add(service, endpoint);
	if (error) {
		free(endpoint);
		return error;
	}
	ldma_endpoint_set_credits(endpoint, config->credits);
	*ret = endpoint;
	return 0;
}

void endpoint_get(struct ldma_endpoint *endpoint)
{
	__atomic_add_fetch(&endpoint->refs, 1, __ATOMIC_RELAXED);
}

void ldma_endpoint_put(struct ldma_endpoint *endpoint)
{
	struct block *block;

	if (!endpoint || __atomic_sub_fetch(&endpoint->refs, 1, __ATOMIC_ACQ_REL))
		return;
	while ((block = endpoint->blocks)) {
		endpoint->blocks = block->next;
		free(block);
	}
	free(endpoint);
}

void ldma_endpoint_start(struct ldma_endpoint *endpoint)
{
	if (ldma_endpoint_is_open(endpoint))
		outbox_submit(endpoint, 0, NULL);
}

void ldma_endpoint_set_credits(struct ldma_endpoint *endpoint, uint32_t credits)
{
	bool is_broken;

	ldma_lock(&endpoint->lock);
	is_broken = endpoint->is_broken;
	endpoint->target = clamped(credits, endpoint->config.credits_max);
	endpoint->stats.credits = endpoint->target;
	credits_top_up(endpoint);
	ldma_unlock(&endpoint->lock);
	if (!is_broken)
		outbox_submit(endpoint, 0, NULL);
}

void ldma_endpoint_drain(struct ldma_endpoint *endpoint)
{
	ldma_lock(&endpoint->lock);
	endpoint->is_draining = true;
	ldma_unlock(&endpoint->lock);
}

uint64_t ldma_endpoint_replied_ns(struct ldma_endpoint *endpoint)
{
	uint64_t replied_ns;

	ldma_lock(&endpoint->lock);
	replied_ns = endpoint->replied_ns;
	ldma_unlock(&endpoint->lock);
	return replied_ns;
}

bool ldma_endpoint_is_open(struct ldma_endpoint *endpoint)
{
	bool is_open;

	ldma_lock(&endpoint->lock);
	is_open = !endpoint->is_broken;
	ldma_unlock(&endpoint->lock);
	return is_open;
}

void ldma_endpoint_moved(struct ldma_endpoint *endpoint, uint64_t read_bytes,
			 uint64_t written_bytes)
{
	ldma_lock(&endpoint->lock);
	endpoint->stats.read_bytes += read_bytes;
	endpoint->stats.written_bytes += written_bytes;
	ldma_unlock(&endpoint->lock);
}

void *ldma_endpoint_owner(struct ldma_endpoint *endpoint)
{
	return endpoint->config.owner;
}

void ldma_endpoint_get_stats(struct ldma_endpoint *endpoint, struct ldma_endpoint_stats *ret)
{
	ldma_lock(&endpoint->lock);
	*ret = endpoint->stats;
	for (const struct posting *posting = endpoint->first_posting; posting;
	     posting = posting->next)
		ret->queued_sends++;
	ldma_unlock(&endpoint->lock);
}

static void end_posting(struct posting *posting, struct ldma_rpc_batch *batch)
{
	struct piece *piece = CONTAINER(posting, struct piece, posting);

	if (posting->is_reply)
		call_finish(CONTAINER(posting, struct call, posting), batch);
	else if (piece->is_pull)
		piece_end_pull(piece, -ECONNRESET, batch);
	else
		piece_free(piece, batch);
}

/* Ends what had not been posted. The queue pair does nothing any more, so buffers may be used again. */
static void end_unposted(struct posting *ops, struct call_list *receives, struct call_list *calls,
			 struct ldma_rpc_batch *batch)
{
	struct call *call;

	while (ops) {
		struct posting *posting = ops;

		ops = posting->next;
		end_posting(posting, batch);
	}
	while ((call = list_take(receives)))
		receive_end(call, batch);
	while ((call = list_take(calls))) {
		call->whole_bytes = 0; /* it waited for room and has taken none */
		call_finish(call, batch);
	}
}

/* Stops the wait for a buffer. Returns whether there was one. The endpoint is locked. */
static bool stop_awaiting_receive(struct ldma_endpoint *endpoint)
{
	if (!endpoint->is_awaiting_receive ||
	    ldma_pool_cancel(endpoint->config.receive_pool, &endpoint->receive_waiter))
		return false;
	endpoint->is_awaiting_receive = false;
	return true;
}

/* The items that an endpoint leaves behind when it breaks. */
struct leftovers {
	struct posting *ops;
	struct call_list receives, calls;
	struct piece *cancelled;
	bool has_awaited;
};

/* Marks the endpoint as broken. Returns false if it was before. The endpoint is locked. */
static bool set_broken(struct ldma_endpoint *endpoint, struct leftovers *ret)
{
	if (endpoint->is_broken)
		return false;
	endpoint->is_broken = endpoint->is_ending = true;
	endpoint_get(endpoint);
	*ret = (struct leftovers){
		.ops = endpoint->first_posting,
		.receives = endpoint->to_post,
		.calls = endpoint->to_gather,
		.cancelled = piece_cancel_all(endpoint),
		.has_awaited = stop_awaiting_receive(endpoint),
	};
	endpoint->first_posting = endpoint->last_posting = endpoint->last_transfer = NULL;
	endpoint->to_post = endpoint->to_gather = (struct call_list){0};
	endpoint->to_post_count = 0;
	return true;
}

/* Once this has returned, in any thread, no thread touches the queue pair any more. */
void endpoint_break(struct ldma_endpoint *endpoint, struct ldma_rpc_batch *batch)
{
	struct ldma_service *service = endpoint->service;
	struct leftovers left;
	uint32_t drained_at = 0;
	bool is_first, is_over;

	ldma_lock(&endpoint->lock);
	is_over = endpoint->is_over;
	ldma_unlock(&endpoint->lock);
	if (is_over)
		return; /* the device may be gone */
	ldma_port_lock(service->config.port);
	ldma_lock(&endpoint->lock);
	is_first = set_broken(endpoint, &left);
	ldma_unlock(&endpoint->lock);
	if (is_first) {
		ldma_qp_modify(endpoint->config.qp, LDMA_QP_ERR, NULL);
		drained_at = service->config.cq->tail;
	}
	ldma_port_unlock(service->config.port);
	if (!is_first)
		return;
	service_breaks(service, endpoint, drained_at);
	piece_fail_all(left.cancelled, batch);
	end_unposted(left.ops, &left.receives, &left.calls, batch);
	ldma_lock(&endpoint->lock);
	endpoint->is_ending = false;
	ldma_unlock(&endpoint->lock);
	endpoint_check_over(endpoint);
	if (left.has_awaited)
		ldma_endpoint_put(endpoint);
	ldma_endpoint_put(endpoint);
}

void ldma_endpoint_close(struct ldma_endpoint *endpoint)
{
	endpoint_break(endpoint, NULL);
}

void endpoint_drained(struct ldma_endpoint *endpoint)
{
	ldma_lock(&endpoint->lock);
	endpoint->is_drained = true;
	ldma_unlock(&endpoint->lock);
	endpoint_check_over(endpoint);
}

void endpoint_check_over(struct ldma_endpoint *endpoint)
{
	const struct ldma_endpoint_stats *stats = &endpoint->stats;
	bool is_over;

	ldma_lock(&endpoint->lock);
	is_over = endpoint->is_broken && !endpoint->is_ending && endpoint->is_drained &&
		  !endpoint->is_over && !stats->in_progress && !stats->replying &&
		  !endpoint->is_awaiting_receive;
	if (is_over)
		endpoint->is_over = true;
	ldma_unlock(&endpoint->lock);
	if (is_over)
		service_ended(endpoint->service, endpoint);
}

/* Completes the pieces of one request of the queue pair: this one and those that follow in its list. */
static void complete_pieces(struct piece *piece, const struct ldma_wc *wc,
			    struct ldma_rpc_batch *batch)
{
	struct ldma_endpoint *endpoint = piece->call->shown.endpoint;
	bool is_there = wc->status == LDMA_WC_SUCCESS;
	struct piece *next;

	for (; piece; piece = next) {
		next = piece->next;
		if (!piece->is_pull) {
			piece_free(piece, batch);
			continue;
		}
		ldma_lock(&endpoint->lock);
		endpoint->stats.bytes_pulled += is_there ? piece->length : 0;
		ldma_unlock(&endpoint->lock);
		piece_end_pull(piece, is_there ? 0 : -ECONNRESET, batch);
	}
}

void endpoint_complete(const struct ldma_wc *wc, struct ldma_rpc_batch *batch)
{
	enum tag tag = (enum tag)(wc->wr_id & TAG_MASK);
	void *pointer = (void *)(uintptr_t)(wc->wr_id & ~(uint64_t)TAG_MASK);
	struct call *call = pointer;
	struct ldma_endpoint *endpoint = pointer;
	bool has_more, is_new = false;

	if (tag == TAG_RECEIVE || tag == TAG_SEND)
		endpoint = call->shown.endpoint;
	else if (tag == TAG_PIECE)
		endpoint = ((struct piece *)pointer)->call->shown.endpoint;
	if (wc->status != LDMA_WC_SUCCESS) {
		ldma_lock(&endpoint->lock);
		endpoint->stats.errors.connection += wc->status != LDMA_WC_WR_FLUSH_ERR;
		is_new = !endpoint->is_broken;
		ldma_unlock(&endpoint->lock);
	}
	if (is_new)
		endpoint_break(endpoint, batch);
	if (tag == TAG_RECEIVE) {
		call_arrive(call, wc, batch);
		return;
	}
	if (tag == TAG_SEND) {
		call->is_sent = wc->status == LDMA_WC_SUCCESS;
		call_finish(call, batch);
		return;
	}
	if (tag == TAG_PIECE)
		complete_pieces(pointer, wc, batch);
	/* The send queue may have room again. */
	ldma_lock(&endpoint->lock);
	has_more = endpoint->first_posting;
	ldma_unlock(&endpoint->lock);
	if (has_more)
		outbox_submit(endpoint, 0, batch);
}
