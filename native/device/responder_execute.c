/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder executes a request that passed its checks. */
#include <string.h>

#include "device/device.h"
#include "device/responder.h"
#include "device/responder_request.h"

/* The Receive cannot take the message: it completes with an error, and the queue pair goes to ERR. */
static enum step fail_receive(struct peer_request *r, enum ldma_wc_status status, enum step refusal)
{
	struct ldma_wc wc = {.status = (uint8_t)status, .opcode = LDMA_WC_RECV};

	ldma_qp_complete_recv(r->qp, &wc);
	if (r->qp->type == LDMA_QP_RC)
		return refusal;
	ldma_qp_enter_error(r->qp);
	return DONE;
}

/* Copies the next bytes of the message into its Receive. */
static enum ldma_iova_result scatter(struct peer_request *r, uint32_t length, const uint8_t *data)
{
	const struct ldma_recv_wqe *recv = &r->qp->resp.recv;

	return ldma_sgl_scatter(&r->qp->device->iova, r->qp->rq->pd, recv->sge, recv->sge_count,
				r->qp->resp.recv_offset, length, data);
}

/* Asks for absent pages of the Receive, to its end: the message's length is not known before its last packet. */
static enum step give_up_send(struct peer_request *r, enum ldma_iova_result result)
{
	const struct ldma_responder *resp = &r->qp->resp;
	uint32_t length = resp->recv.length - resp->recv_offset;

	if (result == LDMA_IOVA_DENIED)
		return fail_receive(r, LDMA_WC_LOC_PROT_ERR, REFUSE_OPERATION);
	if ((r->info->role & LDMA_ROLE_LAST) && !ldma_qp_is_datagram(r->qp))
		length = r->packet->payload_length;
	ldma_sgl_fault(&r->qp->device->iova, r->qp->rq->pd, resp->recv.sge, resp->recv.sge_count,
		       resp->recv_offset, length, LDMA_ACCESS_LOCAL_WRITE);
	return PAGE_ABSENT;
}

static enum step execute_send(struct peer_request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	uint32_t length = r->packet->payload_length;
	enum ldma_iova_result result;

	if (ldma_qp_is_datagram(r->qp)) {
		/* The network header comes first (IBA A17.4): IPv4's in the second half. */
		const uint8_t *l3 = r->packet->frame + r->packet->l3_offset;
		uint8_t grh[LDMA_GRH_BYTES] = {0};

		if (resp->recv.length < LDMA_GRH_BYTES ||
		    length > resp->recv.length - LDMA_GRH_BYTES)
			return DROP;
		if (r->packet->ip_version == 4)
			memcpy(grh + 20, l3, 20);
		else
			memcpy(grh, l3, 40);
		result = scatter(r, LDMA_GRH_BYTES, grh);
		if (result != LDMA_IOVA_OK)
			return give_up_send(r, result);
		resp->recv_offset = LDMA_GRH_BYTES;
	}
	if (length > resp->recv.length - resp->recv_offset) /* IBA 9.7.4.1.6 */
		return fail_receive(r, LDMA_WC_LOC_LEN_ERR, REFUSE_INVALID);
	result = scatter(r, length, r->payload);
	if (result != LDMA_IOVA_OK)
		return give_up_send(r, result);
	resp->recv_offset += length;
	resp->operation = LDMA_OP_SEND;
	return COMPLETE;
}

static enum step execute_write(struct peer_request *r)
{
	struct ldma_iova *iova = &r->qp->device->iova;
	struct ldma_responder *resp = &r->qp->resp;
	uint32_t length = r->packet->payload_length;
	enum ldma_iova_result result = LDMA_IOVA_OK;

	if (r->info->role & LDMA_ROLE_FIRST) {
		resp->write_va = r->packet->va;
		resp->write_rkey = r->packet->rkey;
		resp->write_left = resp->write_length = r->packet->dma_length;
	}
	if (length)
		result = ldma_iova_write(iova, r->qp->pd, resp->write_rkey, resp->write_va,
					 r->payload, length, LDMA_ACCESS_REMOTE_WRITE);
	if (result == LDMA_IOVA_ABSENT) {
		ldma_iova_fault(iova, r->qp->pd, resp->write_rkey, resp->write_va, resp->write_left,
				LDMA_ACCESS_REMOTE_WRITE);
		return PAGE_ABSENT;
	}
	if (result == LDMA_IOVA_DENIED) /* the region has gone since the first packet */
		return REFUSE_ACCESS;
	resp->write_va += length;
	resp->write_left -= length;
	resp->operation = LDMA_OP_WRITE;
	return COMPLETE;
}

static enum step execute_read(struct peer_request *r)
{
	const struct ldma_packet *packet = r->packet;
	uint32_t mtu = r->qp->attr.mtu, first = packet->dma_length < mtu ? packet->dma_length : mtu;
	const struct ldma_iova *iova = &r->qp->device->iova;
	enum ldma_iova_result result = LDMA_IOVA_OK;

	/* The first response's pages have to be there; the other responses wait for theirs if need be. */
	if (first)
		result = ldma_iova_look(iova, r->qp->pd, packet->rkey, packet->va, first,
					LDMA_ACCESS_REMOTE_READ);
	if (result == LDMA_IOVA_ABSENT) {
		ldma_iova_fault(iova, r->qp->pd, packet->rkey, packet->va, packet->dma_length,
				LDMA_ACCESS_REMOTE_READ);
		return PAGE_ABSENT;
	}
	if (result == LDMA_IOVA_DENIED)
		return REFUSE_ACCESS;
	if (packet->dma_length > mtu)
		r->count = (packet->dma_length - 1) / mtu + 1;
	return ldma_responder_reserve(r->qp, r->packet, LDMA_OP_READ, r->count) ? COMPLETE
										: REFUSE_INVALID;
}

static uint64_t change(uint64_t old, const void *context)
{
	const struct peer_request *r = context;

	if (r->info->operation == LDMA_OP_FETCH_ADD)
		return old + r->packet->swap_add;
	return old == r->packet->compare ? r->packet->swap_add : old;
}

static enum step execute_atomic(struct peer_request *r)
{
	struct ldma_iova *iova = &r->qp->device->iova;
	uint64_t original;

	if (!ldma_responder_has_room(r->qp))
		return REFUSE_INVALID;
	switch (ldma_iova_atomic(iova, r->qp->pd, r->packet->rkey, r->packet->va, change, r,
				 &original)) {
	case LDMA_IOVA_DENIED:
		return REFUSE_ACCESS;
	case LDMA_IOVA_ABSENT:
		ldma_iova_fault(iova, r->qp->pd, r->packet->rkey, r->packet->va, sizeof(original),
				LDMA_ACCESS_REMOTE_ATOMIC);
		return PAGE_ABSENT;
	case LDMA_IOVA_OK:
		break;
	}
	ldma_responder_reserve(r->qp, r->packet, r->info->operation, 1)->original = original;
	return COMPLETE;
}

enum step ldma_responder_execute(struct peer_request *r)
{
	switch (r->info->operation) {
	case LDMA_OP_SEND:
		return execute_send(r);
	case LDMA_OP_WRITE:
		return execute_write(r);
	case LDMA_OP_READ:
		return execute_read(r);
	}
	return execute_atomic(r);
}
