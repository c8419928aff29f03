/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/in_use.h"

struct range {
	uint32_t key;
	uint64_t va, length;
};

static bool overlaps(const struct range *r, uint32_t key, uint64_t va, uint64_t length)
{
	return length && key == r->key && va < r->va + r->length && r->va < va + length;
}

static bool is_in_list(const struct range *r, const struct ldma_sge *sge, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (overlaps(r, sge[i].lkey, sge[i].va, sge[i].length))
			return true;
	return false;
}

static bool is_used_by_peer(const struct ldma_responder *resp, const struct range *r)
{
	if (resp->operation == LDMA_OP_WRITE &&
	    overlaps(r, resp->write_rkey, resp->write_va, resp->write_left))
		return true;
	for (uint32_t i = 0; resp->pending && i < LDMA_MAX_RD_ATOMIC; i++) {
		const struct ldma_resource *resource = &resp->resources[i];

		if (resource->is_pending && resource->operation == LDMA_OP_READ &&
		    overlaps(r, resource->rkey, resource->from_va, resource->from_length))
			return true;
	}
	return false;
}

static bool is_used_by_host(const struct ldma_qp *qp, const struct range *r)
{
	if (qp->resp.has_recv && is_in_list(r, qp->resp.recv.sge, qp->resp.recv.sge_count))
		return true;
	for (uint32_t i = qp->rq->head; i != qp->rq->tail; i++) {
		const struct ldma_recv_wqe *wqe = ldma_rq_wqe(qp->rq, i);

		if (is_in_list(r, wqe->sge, wqe->sge_count))
			return true;
	}
	for (uint32_t i = qp->req.head; i != qp->req.tail; i++) {
		const struct ldma_send_wqe *wqe = ldma_qp_wqe(qp, i);

		if (!(wqe->flags & LDMA_SEND_INLINE) && is_in_list(r, wqe->sge, wqe->sge_count))
			return true;
	}
	return false;
}

static uint32_t users_of(const struct ldma_qp *qp, const struct range *r)
{
	bool is_open = qp->state != LDMA_QP_ERR && qp->state != LDMA_QP_RESET;

	return (is_open && is_used_by_peer(&qp->resp, r) ? LDMA_USER_PEER : 0) |
	       (is_used_by_host(qp, r) ? LDMA_USER_HOST : 0);
}

uint32_t ldma_device_uses(const struct ldma_device *device, uint32_t key, uint64_t va,
			  uint64_t length)
{
	struct range r = {key, va, length};
	uint32_t users = device->gsi ? users_of(device->gsi, &r) : 0;

	for (uint32_t i = 0; i <= device->qp_mask; i++)
		if (device->qps[i])
			users |= users_of(device->qps[i], &r);
	return users;
}
