/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/requester.h"
#include "memory/paging.h"

void ldma_qp_wait_for_page(struct ldma_qp *qp, enum ldma_page_wait kind, uint64_t now_ns)
{
	LDMA_COUNT(qp, page_waits);
	if (!qp->page_waits)
		ldma_timer_set(&qp->device->timers, &qp->page_timer, now_ns + LDMA_FAULT_RETRY_NS);
	qp->page_waits |= kind;
}

void ldma_qp_forget_waits(struct ldma_qp *qp, uint8_t kinds)
{
	qp->page_waits &= (uint8_t)~kinds;
	if (!qp->page_waits)
		ldma_timer_set(&qp->device->timers, &qp->page_timer, LDMA_NEVER);
}

static void look_again(struct ldma_timer *timer)
{
	struct ldma_qp *qp =
		(struct ldma_qp *)((char *)timer - offsetof(struct ldma_qp, page_timer));

	qp->page_waits = 0;
	ldma_device_schedule(qp);
}

int ldma_qp_init(struct ldma_qp *qp, struct ldma_device *device, uint32_t number,
		 const struct ldma_qp_init *init)
{
	uint32_t size = 1;
	int error;

	if (init->type < LDMA_QP_GSI || init->type > LDMA_QP_UD || !init->pd || !init->send_cq ||
	    !init->recv_cq)
		return -EINVAL;
	if (init->max_send_sge > LDMA_MAX_SGE || init->max_inline > LDMA_MAX_INLINE ||
	    init->max_send < 1 || init->max_send > 1u << 16)
		return -EINVAL;
	*qp = (struct ldma_qp){
		.device = device,
		.number = number,
		.pd = init->pd,
		.type = init->type,
		.signals_all = init->signals_all,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.rq = init->srq ? init->srq : &qp->own_rq,
		.timer = {.deadline_ns = LDMA_NEVER, .expire = ldma_requester_expire},
		.page_timer = {.deadline_ns = LDMA_NEVER, .expire = look_again},
	};
	while (size < init->max_send)
		size *= 2;
	qp->req.mask = size - 1;
	qp->req.max_sge = init->max_send_sge;
	qp->req.max_inline = init->max_inline;
	qp->req.stride = init->max_send_sge * sizeof(struct ldma_sge);
	if (qp->req.stride < init->max_inline)
		qp->req.stride = init->max_inline;
	if (ldma_qp_is_datagram(qp))
		qp->req.stride += sizeof(struct ldma_path);
	qp->req.stride = (qp->req.stride + sizeof(struct ldma_send_wqe) + 7) & ~(size_t)7;
	if (!init->srq) {
		error = ldma_rq_init(&qp->own_rq, init->pd, init->max_recv, init->max_recv_sge);
		if (error)
			return error;
	}
	qp->req.ring = calloc(size, qp->req.stride);
	if (!qp->req.ring) {
		ldma_rq_destroy(&qp->own_rq);
		return -ENOMEM;
	}
	ldma_pd_get(qp->pd);
	qp->rq->users++;
	qp->send_cq->users++;
	qp->recv_cq->users++;
	return 0;
}

void ldma_qp_destroy(struct ldma_qp *qp)
{
	ldma_pd_put(qp->pd);
	qp->rq->users--;
	qp->send_cq->users--;
	qp->recv_cq->users--;
	ldma_rq_destroy(&qp->own_rq);
	free(qp->req.ring);
	qp->req.ring = NULL;
}

void ldma_qp_raise(struct ldma_qp *qp, enum ldma_event_type type, const void *object)
{
	struct ldma_event event = {.type = (uint8_t)type, .qp_num = qp->number, .object = object};

	if (!ldma_events_push(&qp->device->events, &event))
		LDMA_COUNT(qp, dropped_event);
}

/* A completion queue that has lost a completion can no longer be trusted: a queue pair that completes to it goes to ERR
 * (IBA 11.6.3.1) at its next turn. */
static void push(struct ldma_qp *qp, struct ldma_cq *cq, const struct ldma_wc *wc)
{
	bool was_sound = !cq->lost;

	ldma_cq_push(cq, wc);
	if (!cq->lost)
		return;
	if (was_sound)
		ldma_qp_raise(qp, LDMA_EVENT_CQ_ERR, cq);
	if (qp->state != LDMA_QP_ERR) {
		qp->has_overrun = true;
		ldma_device_schedule(qp);
	}
}

static enum ldma_wc_opcode completion_opcode(const struct ldma_send_wqe *wqe)
{
	switch (wqe->opcode) {
	case LDMA_WR_RDMA_WRITE:
	case LDMA_WR_RDMA_WRITE_WITH_IMM:
		return LDMA_WC_RDMA_WRITE;
	case LDMA_WR_RDMA_READ:
		return LDMA_WC_RDMA_READ;
	case LDMA_WR_ATOMIC_CMP_AND_SWP:
		return LDMA_WC_COMP_SWAP;
	case LDMA_WR_ATOMIC_FETCH_AND_ADD:
		return LDMA_WC_FETCH_ADD;
	}
	return LDMA_WC_SEND;
}

void ldma_qp_complete_send(struct ldma_qp *qp, enum ldma_wc_status status)
{
	struct ldma_requester *req = &qp->req;
	const struct ldma_send_wqe *wqe = ldma_qp_wqe(qp, req->head);
	enum ldma_wc_opcode opcode = completion_opcode(wqe);

	if (status != LDMA_WC_SUCCESS || qp->signals_all || (wqe->flags & LDMA_SEND_SIGNALED)) {
		struct ldma_wc wc = {
			.wr_id = wqe->wr_id,
			.qp_num = qp->number,
			.status = (uint8_t)status,
			.opcode = (uint8_t)opcode,
			.byte_length = wqe->length,
		};

		push(qp, qp->send_cq, &wc);
	}
	if (opcode == LDMA_WC_SEND && status != LDMA_WC_WR_FLUSH_ERR)
		LDMA_COUNT(qp, rdma_sends);
	if (req->cursor == req->head)
		req->cursor++;
	req->head++;
	ldma_qp_tell_drained(qp);
}

void ldma_qp_complete_recv(struct ldma_qp *qp, struct ldma_wc *wc)
{
	wc->wr_id = qp->resp.recv.wr_id;
	wc->qp_num = qp->number;
	qp->resp.has_recv = false;
	qp->resp.recv_offset = 0;
	push(qp, qp->recv_cq, wc);
}

static void flush_sends(struct ldma_qp *qp)
{
	while (qp->req.head != qp->req.tail)
		ldma_qp_complete_send(qp, LDMA_WC_WR_FLUSH_ERR);
	qp->req.una = qp->req.next = qp->req.sent_end = qp->req.post;
	qp->req.rd_outstanding = 0;
	qp->req.is_rnr_waiting = false;
	ldma_qp_forget_waits(qp, LDMA_WAIT_REQUESTS);
	ldma_timer_set(&qp->device->timers, &qp->timer, LDMA_NEVER);
}

static void flush_receives(struct ldma_qp *qp)
{
	do {
		struct ldma_wc wc = {.status = LDMA_WC_WR_FLUSH_ERR, .opcode = LDMA_WC_RECV};

		if (qp->resp.has_recv)
			ldma_qp_complete_recv(qp, &wc);
		/* A shared queue's Receives also belong to other queue pairs (IBA 10.2.9). */
		if (qp->rq == &qp->own_rq)
			qp->resp.has_recv = ldma_rq_take(qp->rq, &qp->resp.recv);
	} while (qp->resp.has_recv);
}

void ldma_qp_enter_error(struct ldma_qp *qp)
{
	if (qp->state != LDMA_QP_ERR && qp->rq != &qp->own_rq)
		ldma_qp_raise(qp, LDMA_EVENT_QP_LAST_WQE_REACHED, qp);
	qp->state = LDMA_QP_ERR;
	flush_sends(qp);
	flush_receives(qp);
	qp->resp.operation = LDMA_OP_UNKNOWN;
}

void ldma_qp_fail_send(struct ldma_qp *qp, enum ldma_wc_status status)
{
	LDMA_COUNT(qp, req_cqe_error);
	ldma_qp_complete_send(qp, status);
	if (qp->type == LDMA_QP_RC) {
		ldma_qp_enter_error(qp);
	} else {
		qp->state = LDMA_QP_SQE;
		flush_sends(qp);
	}
}

bool ldma_qp_is_drained(const struct ldma_qp *qp)
{
	return qp->state == LDMA_QP_SQD &&
	       (qp->req.head == qp->req.tail ||
		ldma_qp_wqe(qp, qp->req.head)->first_psn >= qp->req.sent_end);
}

void ldma_qp_tell_drained(struct ldma_qp *qp)
{
	if (qp->state != LDMA_QP_SQD || qp->req.is_drain_told || !ldma_qp_is_drained(qp))
		return;
	qp->req.is_drain_told = true;
	ldma_qp_raise(qp, LDMA_EVENT_SQ_DRAINED, qp);
}

void ldma_qp_end_overrun(struct ldma_qp *qp)
{
	qp->has_overrun = false;
	ldma_qp_raise(qp, LDMA_EVENT_QP_FATAL, qp);
	if (qp->state != LDMA_QP_ERR)
		ldma_qp_enter_error(qp);
}

void ldma_qp_start_packet(const struct ldma_qp *qp, const struct ldma_path *path, uint8_t opcode,
			  uint32_t psn, struct ldma_packet *ret)
{
	*ret = (struct ldma_packet){
		.version = 2,
		.ip_version = path->ip_version,
		.tos = path->tos,
		.ttl = path->ttl,
		.sport = path->sport,
		.dport = LDMA_ROCE2_PORT,
		.ip_id = qp->device->ip_id,
		.opcode = opcode,
		.flags = 0x40, /* migrated: the only state without path migration (IBA 17.2.8) */
		.pkey = qp->attr.pkey,
		.dest_qp = qp->attr.dest_qp,
		.psn = psn & LDMA_PSN_MASK,
	};
	memcpy(ret->src, path->src, 16);
	memcpy(ret->dst, path->dst, 16);
}
