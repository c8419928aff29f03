/* SPDX-License-Identifier: BSD-2-Clause */
/* The order in which an endpoint posts: Receives first, so that no reply lets the peer send a call that finds none. */
#include <errno.h>

#include "rpc/endpoint_internal.h"

/* Data of several calls goes before their replies: packets of one size share trains. What was not posted at the first
 * try keeps its place. */
void outbox_append(struct ldma_endpoint *endpoint, struct posting *posting, bool is_reply)
{
	struct posting *before = is_reply ? endpoint->last_posting : endpoint->last_transfer;
	struct posting **at = before ? &before->next : &endpoint->first_posting;

	posting->stalled_ns = 0;
	posting->is_reply = is_reply;
	posting->next = *at;
	*at = posting;
	if (!posting->next)
		endpoint->last_posting = posting;
	if (!is_reply)
		endpoint->last_transfer = posting;
}

static int post_receives(struct ldma_endpoint *endpoint)
{
	struct call *call;

	while ((call = endpoint->to_post.first)) {
		struct ldma_sge sge = {
			.va = call->buffer.va,
			.length = endpoint->config.receive_bytes,
			.lkey = call->buffer.lkey,
		};
		struct ldma_recv_wr wr = {
			.wr_id = (uintptr_t)call | TAG_RECEIVE, .sge = &sge, .sge_count = 1};
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

/* Requests that wait for room in the send queue are posted after a completion, so each quarter of the queue has to
 * bring one. */
static bool is_signal_due(const struct ldma_endpoint *endpoint)
{
	return endpoint->unsignaled >= endpoint->config.qp->req.mask / 4;
}

/* Returns the next piece, if it goes on where this one ends. */
static struct piece *follower(const struct piece *piece)
{
	struct posting *posting = piece->posting.next;
	struct piece *next;

	if (!posting || posting->is_reply)
		return NULL;
	next = CONTAINER(posting, struct piece, posting);
	return next->call == piece->call && next->chunk == piece->chunk &&
			       next->offset == piece->offset + piece->length
		       ? next
		       : NULL;
}

/* Pieces one behind the other in one segment of the peer, for one request of the queue pair. */
struct joined {
	struct ldma_sge sge[LDMA_MAX_SGE];
	uint32_t count, length;
	struct piece *whole, **whole_end; /* those that end with it */
	struct piece *partly;             /* the last one, if it goes on in the next segment */
	struct posting *rest;             /* the items to be posted afterwards */
};

static void join(const struct ldma_endpoint *endpoint, struct piece *piece, uint32_t room,
		 struct joined *ret)
{
	uint32_t most = at_most(endpoint->config.qp->req.max_sge, LDMA_MAX_SGE);

	*ret = (struct joined){.whole_end = &ret->whole, .rest = &piece->posting};
	while (piece && ret->count < most && (room || !ret->count)) {
		uint32_t left = piece->length - piece->posted;
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
		ret->rest = piece->posting.next;
		piece = follower(piece);
	}
}

/* Leaves the pieces to their call, which frees them once its reply has gone. */
static void depart(struct call *call, struct piece *pieces)
{
	while (pieces) {
		struct piece *piece = pieces;

		pieces = piece->next;
		piece->next = call->reply_pieces;
		call->reply_pieces = piece;
	}
}

/* Posts the piece, as far as one segment takes it, and those that follow it there. Pieces of a reply complete with it;
 * others have a completion, which says that their data came or their buffers are free. */
static int post_pieces(struct ldma_endpoint *endpoint, struct piece *piece)
{
	struct call *call = piece->call;
	const struct ldma_rpcrdma_segment *segment =
		&call->header.segments[piece->chunk->first + piece->segment];
	bool is_departing = !piece->is_pull && call->is_replying;
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
		depart(call, joined.whole);
	endpoint->first_posting = joined.rest;
	return 0;
}

static void count_reply(struct ldma_endpoint *endpoint, const struct ldma_call *shown, uint64_t now)
{
	struct ldma_endpoint_stats *stats = &endpoint->stats;

	ldma_times_add(&stats->latency, now > shown->received_ns ? now - shown->received_ns : 0);
	stats->read_bytes += shown->read_bytes;
	stats->written_bytes += shown->written_bytes;
}

static int post_reply(struct ldma_endpoint *endpoint, struct call *call, uint64_t now)
{
	struct ldma_sge sge = {
		.va = call->buffer.va,
		.length = call->send_bytes,
		.lkey = call->buffer.lkey,
	};
	struct ldma_send_wr wr = {
		.wr_id = (uintptr_t)call | TAG_SEND,
		.sge = &sge,
		.sge_count = 1,
		.opcode = call->invalidated ? LDMA_WR_SEND_WITH_INV : LDMA_WR_SEND,
		.flags = LDMA_SEND_SIGNALED,
		.imm = call->invalidated,
	};
	int error = ldma_qp_post_send(endpoint->config.qp, &wr);

	if (error)
		return error;
	endpoint->unsignaled = 0;
	call->sent_ns = endpoint->replied_ns = now;
	list_append(&endpoint->sending, call);
	count_reply(endpoint, &call->shown, now);
	endpoint->stats.invalidations += call->invalidated != 0;
	return 0;
}

/* Posts the first item, or a part of it. Once it is posted, its completion may free it at any time. */
static int post_first(struct ldma_endpoint *endpoint, uint64_t now)
{
	struct posting *posting = endpoint->first_posting, *rest = posting->next;
	int error;

	if (!posting->is_reply)
		return post_pieces(endpoint, CONTAINER(posting, struct piece, posting));
	error = post_reply(endpoint, CONTAINER(posting, struct call, posting), now);
	if (!error)
		endpoint->first_posting = rest;
	return error;
}

static int post_ops(struct ldma_endpoint *endpoint, uint64_t now)
{
	while (endpoint->first_posting) {
		struct posting *posting = endpoint->first_posting;
		uint64_t stalled_ns = posting->stalled_ns;
		int error = post_first(endpoint, now);

		if (error) {
			if (!stalled_ns)
				posting->stalled_ns = now;
			return error;
		}
		if (stalled_ns && endpoint->first_posting != posting)
			ldma_times_add(&endpoint->stats.send_waits, now - stalled_ns);
	}
	endpoint->last_posting = NULL;
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
		endpoint->last_transfer = endpoint->last_posting;
	}
	ldma_unlock(&endpoint->lock);
	return !error || error == -ENOMEM; /* ENOMEM: no room in a ring; it is posted later */
}

void outbox_submit(struct ldma_endpoint *endpoint, uint32_t data_bytes,
		   struct ldma_rpc_batch *batch)
{
	struct ldma_service *service = endpoint->service;
	bool is_sound;

	/* Another service's thread may have brought a buffer of a pool that both use. */
	if (batch && batch->service == service) {
		batch_add(batch, endpoint, data_bytes);
		return;
	}
	ldma_port_lock(service->config.port);
	is_sound = outbox_post(endpoint, ldma_now_ns());
	ldma_port_unlock(service->config.port);
	__atomic_add_fetch(&service->stats.locks, 1, __ATOMIC_RELAXED);
	if (!is_sound)
		endpoint_break(endpoint, NULL);
}
