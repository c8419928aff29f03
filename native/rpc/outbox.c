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

/* The next piece, if it goes on where this one ends. */
static struct piece *follower(const struct piece *piece)
{
	struct op *op = piece->op.next;
	struct piece *next;

	if (!op || op->kind != piece->op.kind)
		return NULL;
	next = CONTAINER(op, struct piece, op);
	return next->request == piece->request && next->chunk == piece->chunk &&
			       next->shown.offset == piece->shown.offset + piece->shown.length
		       ? next
		       : NULL;
}

/* Pieces one behind the other in one segment of the peer's, for one request of the queue pair. */
struct joined {
	struct ldma_sge sge[LDMA_MAX_SGE];
	uint32_t count, length;
	struct piece *whole, **whole_end; /* those that end with it */
	struct piece *partly;             /* the last, if it goes on in the next segment */
	struct op *rest;                  /* what is to be posted afterwards */
};

static void join(const struct ldma_endpoint *endpoint, struct piece *piece, uint32_t room,
		 struct joined *ret)
{
	uint32_t most = at_most(endpoint->config.qp->req.max_sge, LDMA_MAX_SGE);

	*ret = (struct joined){.whole_end = &ret->whole, .rest = &piece->op};
	while (piece && ret->count < most && (room || !ret->count)) {
		uint32_t left = piece->shown.length - piece->posted;
		uint32_t length = at_most(left, room);

		ret->sge[ret->count++] = (struct ldma_sge){.va = piece->buffer.va + piece->posted,
							   .length = length,
							   .lkey = piece->buffer.lkey};
		ret->length += length;
		room -= length;
		if (length < left) {
			ret->partly = piece;
			return;
		}
		piece->next = NULL;
		*ret->whole_end = piece;
		ret->whole_end = &piece->next;
		ret->rest = piece->op.next;
		piece = follower(piece);
	}
}

/* They are free when their reply has gone. */
static void depart(struct request *request, struct piece *pieces)
{
	while (pieces) {
		struct piece *piece = pieces;

		pieces = piece->next;
		piece->next = request->departed;
		request->departed = piece;
	}
}

/* The piece, as far as one segment takes it, and those that follow it there. Pieces of a reply complete with it; others tell
 * when they are there, or their buffers free. */
static int post_pieces(struct ldma_endpoint *endpoint, struct piece *piece)
{
	struct request *request = piece->request;
	const struct ldma_rpcrdma_segment *segment =
		&request->header.segments[piece->chunk->first + piece->segment];
	bool is_departing = !piece->is_pull && request->is_replying;
	bool tells, is_due = is_signal_due(endpoint);
	struct ldma_send_wr wr;
	struct joined joined;
	int error;

	join(endpoint, piece, segment->length - piece->segment_used, &joined);
	tells = joined.whole && !is_departing;
	wr = (struct ldma_send_wr){
		.wr_id = tells ? (uintptr_t)joined.whole | TAG_PIECE
			       : (uintptr_t)endpoint | TAG_NOTHING,
		.sge = joined.sge,
		.sge_count = joined.count,
		.opcode = piece->is_pull ? LDMA_WR_RDMA_READ : LDMA_WR_RDMA_WRITE,
		.flags = tells || is_due ? LDMA_SEND_SIGNALED : 0,
		.remote_va = segment->offset + piece->segment_used,
		.rkey = segment->handle,
	};
	error = joined.length ? ldma_qp_post_send(endpoint->config.qp, &wr) : 0;
	if (error)
		return error;
	if (joined.length)
		endpoint->unsignaled = tells || is_due ? 0 : endpoint->unsignaled + 1;
	if (joined.partly) {
		joined.partly->posted += joined.sge[joined.count - 1].length;
		joined.partly->segment++;
		joined.partly->segment_used = 0;
	}
	if (is_departing)
		depart(request, joined.whole);
	endpoint->first_op = joined.rest;
	return 0;
}

static void count_reply(struct ldma_endpoint *endpoint, const struct ldma_call *call, uint64_t now)
{
	struct ldma_endpoint_stats *stats = &endpoint->stats;

	ldma_times_add(&stats->latency, now > call->received_ns ? now - call->received_ns : 0);
	stats->read_bytes += call->read_bytes;
	stats->written_bytes += call->written_bytes;
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
	count_reply(endpoint, &request->call, now);
	endpoint->stats.invalidations += request->invalidated != 0;
	return 0;
}

/* What is first, or a part of it. It may belong to somebody else, once posted. */
static int post_first(struct ldma_endpoint *endpoint, uint64_t now)
{
	struct op *op = endpoint->first_op, *rest = op->next;
	int error;

	if (op->kind != OP_SEND)
		return post_pieces(endpoint, CONTAINER(op, struct piece, op));
	error = post_reply(endpoint, CONTAINER(op, struct request, op), now);
	if (!error)
		endpoint->first_op = rest;
	return error;
}

static int post_ops(struct ldma_endpoint *endpoint, uint64_t now)
{
	while (endpoint->first_op) {
		struct op *op = endpoint->first_op;
		uint64_t stalled_ns = op->stalled_ns;
		int error = post_first(endpoint, now);

		if (error) {
			if (!stalled_ns)
				op->stalled_ns = now;
			return error;
		}
		if (stalled_ns && endpoint->first_op != op)
			ldma_times_add(&endpoint->stats.send_waits, now - stalled_ns);
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

void outbox_submit(struct ldma_endpoint *endpoint, uint32_t data_bytes)
{
	struct ldma_service *service = endpoint->service;
	bool is_sound;

	if (service_defer(service, endpoint, data_bytes))
		return;
	ldma_port_lock(service->config.port);
	is_sound = outbox_post(endpoint, now_ns());
	ldma_port_unlock(service->config.port);
	__atomic_add_fetch(&service->stats.locks, 1, __ATOMIC_RELAXED);
	if (!is_sound)
		endpoint_break(endpoint);
}
