/* What an endpoint posts, in its order: Receives first, so that no reply lets the peer send what finds none. */
#include <errno.h>

#include "endpoint_internal.h"

/* Data of several calls goes before their replies: packets of one size share trains. What was not posted at the first try
 * keeps its place. */
void outbox_append(struct ldma_endpoint *endpoint, struct op *op, enum op_kind kind)
{
	struct op *before = kind == OP_SEND ? endpoint->last_op : endpoint->last_transfer;
	struct op **at = before ? &before->next : &endpoint->first_op;

	op->stalled_ns = 0;
	op->kind = (uint8_t)kind;
	op->next = *at;
	*at = op;
	if (!op->next)
		endpoint->last_op = op;
	if (kind != OP_SEND)
		endpoint->last_transfer = op;
}

static int post_receives(struct ldma_endpoint *endpoint)
{
	struct request *request;

	while ((request = endpoint->to_post.first)) {
		struct ldma_sge sge = {
			.va = request->buffer.va,
			.length = endpoint->config.receive_bytes,
			.lkey = request->buffer.lkey,
		};
		struct ldma_recv_wr wr = {
			.wr_id = (uintptr_t)request | TAG_RECEIVE, .sge = &sge, .sge_count = 1};
		int error = ldma_qp_post_recv(endpoint->config.qp, &wr);

		if (error)
			return error;
		list_take(&endpoint->to_post);
		endpoint->to_post_count--;
		endpoint->stats.posted++;
	}
	return 0;
}

static uint32_t at_most(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Who waits for room in the send queue hears of completions alone: there has to be one in each quarter of it. */
static bool is_signal_due(const struct ldma_endpoint *endpoint)
{
	return endpoint->unsignaled >= endpoint->config.qp->req.mask / 4;
}

/* A request for each segment that it touches. Those of a reply complete with it; others tell when their buffer is free. */
static int post_piece(struct ldma_endpoint *endpoint, struct piece *piece)
{
	struct request *request = piece->request;
	bool is_departing = !piece->is_pull && request->is_replying;

	while (piece->posted < piece->shown.length) {
		const struct ldma_rpcrdma_segment *segment =
			&request->header.segments[piece->chunk->first + piece->segment];
		uint32_t left = piece->shown.length - piece->posted;
		uint32_t length = at_most(left, segment->length - piece->segment_used);
		bool tells = length == left && !is_departing, is_due = is_signal_due(endpoint);
		struct ldma_sge sge = {.va = piece->buffer.va + piece->posted,
				       .length = length,
				       .lkey = piece->buffer.lkey};
		struct ldma_send_wr wr = {
			.wr_id = tells ? (uintptr_t)piece | TAG_PIECE
				       : (uintptr_t)endpoint | TAG_NOTHING,
			.sge = &sge,
			.sge_count = 1,
			.opcode = piece->is_pull ? LDMA_WR_RDMA_READ : LDMA_WR_RDMA_WRITE,
			.flags = tells || is_due ? LDMA_SEND_SIGNALED : 0,
			.remote_va = segment->offset + piece->segment_used,
			.rkey = segment->handle,
		};
		int error = length ? ldma_qp_post_send(endpoint->config.qp, &wr) : 0;

		if (error)
			return error;
		if (length)
			endpoint->unsignaled = tells || is_due ? 0 : endpoint->unsignaled + 1;
		piece->posted += length;
		piece->segment_used += length;
		if (piece->segment_used == segment->length) {
			piece->segment++;
			piece->segment_used = 0;
		}
	}
	if (is_departing) {
		piece->next = request->departed;
		request->departed = piece;
	}
	return 0;
}

static int post_reply(struct ldma_endpoint *endpoint, struct request *request, uint64_t now)
{
	struct ldma_sge sge = {
		.va = request->buffer.va,
		.length = request->send_bytes,
		.lkey = request->buffer.lkey,
	};
	struct ldma_send_wr wr = {
		.wr_id = (uintptr_t)request | TAG_SEND,
		.sge = &sge,
		.sge_count = 1,
		.opcode = request->invalidated ? LDMA_WR_SEND_WITH_INV : LDMA_WR_SEND,
		.flags = LDMA_SEND_SIGNALED,
		.imm = request->invalidated,
	};
	int error = ldma_qp_post_send(endpoint->config.qp, &wr);

	if (error)
		return error;
	endpoint->unsignaled = 0;
	request->sent_ns = now;
	list_append(&endpoint->sending, request);
	endpoint->stats.invalidations += request->invalidated != 0;
	return 0;
}

static int post_op(struct ldma_endpoint *endpoint, struct op *op, uint64_t now)
{
	if (op->kind == OP_SEND)
		return post_reply(endpoint, CONTAINER(op, struct request, op), now);
	return post_piece(endpoint, CONTAINER(op, struct piece, op));
}

static int post_ops(struct ldma_endpoint *endpoint, uint64_t now)
{
	struct op *op;

	while ((op = endpoint->first_op)) {
		uint64_t stalled_ns = op->stalled_ns;
		int error;

		endpoint->first_op = op->next; /* it may belong to somebody else, once posted */
		error = post_op(endpoint, op, now);
		if (error) {
			endpoint->first_op = op;
			if (!stalled_ns)
				op->stalled_ns = now;
			return error;
		}
		if (stalled_ns)
			ldma_histogram_add(&endpoint->stats.send_waits, now - stalled_ns);
	}
	endpoint->last_op = NULL;
	return 0;
}

bool outbox_post(struct ldma_endpoint *endpoint, uint64_t now)
{
	int error = 0;

	ldma_lock(&endpoint->lock);
	if (!endpoint->is_broken) {
		error = post_receives(endpoint);
		/* Before the peer has confirmed the connection, calls may come, but nothing may be sent. */
		if (!error && endpoint->config.qp->state >= LDMA_QP_RTS)
			error = post_ops(endpoint, now);
		endpoint->last_transfer = endpoint->last_op;
	}
	ldma_unlock(&endpoint->lock);
	return !error || error == -ENOMEM; /* no room in a ring: later */
}

void outbox_submit(struct ldma_endpoint *endpoint)
{
	struct ldma_service *service = endpoint->service;
	bool is_sound;

	if (service_is_batching(service)) {
		service_mark_dirty(service, endpoint);
		return;
	}
	ldma_port_lock(service->config.port);
	is_sound = outbox_post(endpoint, now_ns());
	ldma_port_unlock(service->config.port);
	__atomic_add_fetch(&service->stats.locks, 1, __ATOMIC_RELAXED);
	if (!is_sound)
		endpoint_break(endpoint);
}
