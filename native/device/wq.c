/* SPDX-License-Identifier: BSD-2-Clause */
/* Work queues: posts work requests to the rings that qp.h describes, and takes Receives from them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/qp.h"

static size_t recv_bytes(uint32_t sge_count)
{
	return offsetof(struct ldma_recv_wqe, sge) + sge_count * sizeof(struct ldma_sge);
}

int ldma_rq_init(struct ldma_rq *rq, struct ldma_pd *pd, uint32_t depth, uint32_t max_sge)
{
	uint32_t size = 1;

	if (!pd || max_sge > LDMA_MAX_SGE || depth > 1u << 16)
		return -EINVAL;
	while (size < depth)
		size *= 2;
	*rq = (struct ldma_rq){
		.stride = recv_bytes(max_sge), .mask = size - 1, .max_sge = max_sge, .pd = pd};
	rq->ring = calloc(size, rq->stride);
	if (!rq->ring)
		return -ENOMEM;
	ldma_pd_get(pd);
	return 0;
}

void ldma_rq_destroy(struct ldma_rq *rq)
{
	if (rq->ring)
		ldma_pd_put(rq->pd);
	free(rq->ring);
	rq->ring = NULL;
}

int ldma_rq_post(struct ldma_rq *rq, const struct ldma_recv_wr *wr)
{
	uint64_t length = ldma_sgl_length(wr->sge, wr->sge_count);
	struct ldma_recv_wqe *wqe;

	if (wr->sge_count > rq->max_sge)
		return -EINVAL;
	if (rq->tail - rq->head > rq->mask)
		return -ENOMEM;
	wqe = ldma_rq_wqe(rq, rq->tail);
	wqe->wr_id = wr->wr_id;
	wqe->sge_count = wr->sge_count;
	wqe->length = length < LDMA_MAX_MESSAGE ? (uint32_t)length : LDMA_MAX_MESSAGE;
	if (wr->sge_count)
		memcpy(wqe->sge, wr->sge, wr->sge_count * sizeof(*wr->sge));
	rq->tail++;
	return 0;
}

void ldma_rq_set_limit(struct ldma_rq *rq, uint32_t limit)
{
	rq->limit = limit;
}

bool ldma_rq_take(struct ldma_rq *rq, struct ldma_recv_wqe *ret)
{
	const struct ldma_recv_wqe *wqe;

	if (rq->head == rq->tail)
		return false;
	wqe = ldma_rq_wqe(rq, rq->head);
	memcpy(ret, wqe, recv_bytes(wqe->sge_count));
	rq->head++;
	return true;
}

bool ldma_qp_take_recv(struct ldma_qp *qp, struct ldma_recv_wqe *ret)
{
	struct ldma_rq *rq = qp->rq;
	bool has_taken = ldma_rq_take(rq, ret);

	/* The event comes once until the limit is set anew (IBA 10.2.9.2). */
	if (rq->tail - rq->head < rq->limit) {
		rq->limit = 0;
		ldma_qp_raise(qp, LDMA_EVENT_SRQ_LIMIT_REACHED, rq);
	}
	return has_taken;
}

int ldma_qp_post_recv(struct ldma_qp *qp, const struct ldma_recv_wr *wr)
{
	int error;

	if (qp->state == LDMA_QP_RESET || qp->rq != &qp->own_rq)
		return -EINVAL;
	error = ldma_rq_post(qp->rq, wr);
	if (!error && qp->state == LDMA_QP_ERR)
		ldma_qp_enter_error(qp);
	return error;
}

/* Returns whether the queue pair's transport carries the operation (IBA 9.4). */
static bool is_supported(const struct ldma_qp *qp, uint8_t opcode)
{
	switch (opcode) {
	case LDMA_WR_SEND:
	case LDMA_WR_SEND_WITH_IMM:
		return true;
	case LDMA_WR_RDMA_WRITE:
	case LDMA_WR_RDMA_WRITE_WITH_IMM:
		return !ldma_qp_is_datagram(qp);
	case LDMA_WR_SEND_WITH_INV:
		return qp->type == LDMA_QP_RC;
	case LDMA_WR_RDMA_READ:
	case LDMA_WR_ATOMIC_CMP_AND_SWP:
	case LDMA_WR_ATOMIC_FETCH_AND_ADD:
		return qp->type == LDMA_QP_RC && qp->attr.max_rd_atomic > 0;
	}
	return false;
}

static bool is_postable(const struct ldma_qp *qp, const struct ldma_send_wr *wr, uint64_t length)
{
	bool is_atomic = wr->opcode == LDMA_WR_ATOMIC_CMP_AND_SWP ||
			 wr->opcode == LDMA_WR_ATOMIC_FETCH_AND_ADD;

	if (!is_supported(qp, wr->opcode) || wr->flags & 0xf0)
		return false;
	if (wr->flags & LDMA_SEND_INLINE) {
		if (length > qp->req.max_inline || is_atomic || wr->opcode == LDMA_WR_RDMA_READ)
			return false;
	} else if (wr->sge_count > qp->req.max_sge) {
		return false;
	}
	if (is_atomic && (length != 8 || wr->remote_va & 7)) /* IBA 9.4.5 */
		return false;
	if (ldma_qp_is_datagram(qp))
		return wr->path && (wr->path->ip_version == 4 || wr->path->ip_version == 6) &&
		       wr->remote_qp <= LDMA_PSN_MASK && length <= qp->attr.mtu;
	return length <= LDMA_MAX_MESSAGE;
}

int ldma_qp_post_send(struct ldma_qp *qp, const struct ldma_send_wr *wr)
{
	bool is_inline = wr->flags & LDMA_SEND_INLINE;
	uint64_t length = is_inline ? wr->inline_length : ldma_sgl_length(wr->sge, wr->sge_count);
	struct ldma_requester *req = &qp->req;
	struct ldma_send_wqe *wqe;

	if (qp->state < LDMA_QP_RTS || !is_postable(qp, wr, length))
		return -EINVAL;
	if (req->tail - req->head > req->mask)
		return -ENOMEM;
	wqe = ldma_qp_wqe(qp, req->tail);
	*wqe = (struct ldma_send_wqe){
		.wr_id = wr->wr_id,
		.remote_va = wr->remote_va,
		.compare = wr->compare,
		.swap_add = wr->swap_add,
		.length = (uint32_t)length,
		.rkey = wr->rkey,
		.imm = wr->imm,
		.opcode = wr->opcode,
		.flags = wr->flags,
		.first_psn = req->post,
	};
	if (is_inline && length) {
		memcpy(wqe->sge, wr->inline_data, length);
	} else if (!is_inline && wr->sge_count) {
		wqe->sge_count = (uint8_t)wr->sge_count;
		memcpy(wqe->sge, wr->sge, wr->sge_count * sizeof(*wr->sge));
	}
	if (ldma_qp_is_datagram(qp)) {
		*ldma_qp_wqe_path(qp, req->tail) = *wr->path;
		wqe->remote_qp = wr->remote_qp;
		wqe->remote_qkey = wr->remote_qkey;
	}
	/* A READ takes the PSNs of its responses, an empty message one (IBA 9.7.2). A queue pair that failed before
	 * it was ready to send has no MTU: there the request is flushed below. */
	wqe->end_psn = wqe->first_psn + 1;
	if (length > qp->attr.mtu && qp->attr.mtu)
		wqe->end_psn = wqe->first_psn + (length + qp->attr.mtu - 1) / qp->attr.mtu;
	req->post = wqe->end_psn;
	req->tail++;
	if (qp->state == LDMA_QP_ERR || qp->state == LDMA_QP_SQE) {
		while (req->head != req->tail)
			ldma_qp_complete_send(qp, LDMA_WC_WR_FLUSH_ERR);
		req->una = req->next = req->sent_end = req->post;
		return 0;
	}
	ldma_device_schedule(qp);
	return 0;
}
