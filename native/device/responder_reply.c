/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder's answers: ACKs, and responses to READs and atomics, also when they are asked for again. */
#include "device/device.h"
#include "device/responder.h"

void ldma_responder_acknowledge(struct ldma_qp *qp, uint32_t psn, uint8_t syndrome)
{
	if (qp->resp.is_ack_pending)
		LDMA_COUNT(qp, acks_coalesced);
	qp->resp.is_ack_pending = true;
	qp->resp.is_ack_lazy = false;
	qp->resp.ack_psn = psn;
	qp->resp.ack_syndrome = syndrome;
}

void ldma_responder_refuse(struct ldma_qp *qp, uint32_t psn, uint8_t syndrome)
{
	/* For other syndromes a completion tells of it (IBA 11.6.3.2). */
	if (syndrome == LDMA_SYNDROME_NAK_INVALID)
		ldma_qp_raise(qp, LDMA_EVENT_QP_REQ_ERR, qp);
	else if (syndrome == LDMA_SYNDROME_NAK_ACCESS)
		ldma_qp_raise(qp, LDMA_EVENT_QP_ACCESS_ERR, qp);
	ldma_qp_enter_error(qp);
	ldma_responder_acknowledge(qp, psn, syndrome);
}

static void set_pending(struct ldma_qp *qp, struct ldma_resource *resource, uint32_t psn,
			uint64_t va, uint32_t length)
{
	if (!resource->is_pending)
		qp->resp.pending++;
	resource->is_pending = true;
	resource->psn = psn;
	resource->sent = 0;
	resource->from_va = va;
	resource->from_length = length;
}

bool ldma_responder_has_room(const struct ldma_qp *qp)
{
	const struct ldma_resource *resource = &qp->resp.resources[qp->resp.newest];

	/* A peer may not have more open than was agreed (IBA 9.7.4.1). A pending repetition does not count: a peer that
	 * sends a new request has had the first answer. */
	return qp->attr.max_dest_rd_atomic && (!resource->is_pending || resource->was_answered);
}

struct ldma_resource *ldma_responder_reserve(struct ldma_qp *qp, const struct ldma_packet *packet,
					     uint8_t operation, uint32_t count)
{
	struct ldma_responder *resp = &qp->resp;
	struct ldma_resource *resource = &resp->resources[resp->newest];

	if (!ldma_responder_has_room(qp))
		return NULL;
	if (resource->is_pending)
		resp->pending--;
	resp->newest = (resp->newest + 1) % qp->attr.max_dest_rd_atomic;
	*resource = (struct ldma_resource){
		.operation = operation,
		.first_psn = packet->psn,
		.count = count,
		.va = packet->va,
		.rkey = packet->rkey,
		.length = packet->dma_length,
	};
	set_pending(qp, resource, packet->psn, packet->va, packet->dma_length);
	return resource;
}

/* Returns the newest request with that operation and PSN, or NULL. */
static struct ldma_resource *find(struct ldma_qp *qp, uint32_t psn, uint8_t operation)
{
	uint32_t size = qp->attr.max_dest_rd_atomic;

	for (uint32_t i = 1; i <= size; i++) {
		uint32_t index = (qp->resp.newest + size - i) % size;
		struct ldma_resource *resource = &qp->resp.resources[index];

		if (resource->operation == operation &&
		    ((psn - resource->first_psn) & LDMA_PSN_MASK) < resource->count)
			return resource;
	}
	return NULL;
}

/* Returns up to which PSN a repeated SEND or WRITE can be acknowledged: not beyond a READ or atomic that follows it, as
 * the requester may lack its response and will ask for it. */
static uint32_t acknowledged(const struct ldma_qp *qp, uint32_t psn)
{
	uint32_t reach = (qp->resp.epsn - 1 - psn) & LDMA_PSN_MASK;

	for (uint32_t i = 0; i < qp->attr.max_dest_rd_atomic; i++) {
		const struct ldma_resource *resource = &qp->resp.resources[i];
		uint32_t distance = (resource->first_psn - psn) & LDMA_PSN_MASK;

		if (resource->operation != LDMA_OP_UNKNOWN && distance && distance <= reach)
			reach = distance - 1;
	}
	return (psn + reach) & LDMA_PSN_MASK;
}

/* A READ may be repeated from any of its responses on, with the rest of its length (IBA 9.7.5.1.4). */
static void repeat_read(struct ldma_qp *qp, const struct ldma_packet *packet)
{
	struct ldma_resource *resource = find(qp, packet->psn, LDMA_OP_READ);
	uint32_t offset;

	if (!resource)
		return;
	offset = ((packet->psn - resource->first_psn) & LDMA_PSN_MASK) * qp->attr.mtu;
	if (packet->rkey != resource->rkey || packet->va != resource->va + offset ||
	    packet->dma_length > resource->length - offset)
		return;
	set_pending(qp, resource, packet->psn, packet->va, packet->dma_length);
}

void ldma_responder_repeat(struct ldma_qp *qp, const struct ldma_packet *packet,
			   const struct ldma_opcode_info *info)
{
	struct ldma_responder *resp = &qp->resp;
	struct ldma_resource *resource;
	uint32_t psn;

	switch (info->operation) {
	case LDMA_OP_SEND:
	case LDMA_OP_WRITE:
		psn = acknowledged(qp, packet->psn);
		/* A NAK that waits, or an ACK of a later PSN, already says this. */
		if (resp->is_ack_pending &&
		    (resp->ack_syndrome != LDMA_SYNDROME_ACK ||
		     ((resp->ack_psn - psn) & LDMA_PSN_MASK) < LDMA_PSN_HALF))
			break;
		ldma_responder_acknowledge(qp, psn, LDMA_SYNDROME_ACK);
		break;
	case LDMA_OP_READ:
		repeat_read(qp, packet);
		break;
	case LDMA_OP_COMPARE_SWAP:
	case LDMA_OP_FETCH_ADD: /* the result of the first time: atomics happen once (IBA 9.4.5) */
		resource = find(qp, packet->psn, info->operation);
		if (resource && resource->va == packet->va && resource->rkey == packet->rkey)
			set_pending(qp, resource, packet->psn, packet->va, 0);
		break;
	}
}

/* A response acknowledges all PSNs before it (IBA 9.7.5.1.2): an ACK of an earlier PSN that waits would only follow it
 * out of order. */
static void drop_implied_acknowledge(struct ldma_qp *qp, uint32_t psn)
{
	struct ldma_responder *resp = &qp->resp;

	if (!resp->is_ack_pending || resp->ack_syndrome != LDMA_SYNDROME_ACK ||
	    ((psn - 1 - resp->ack_psn) & LDMA_PSN_MASK) >= LDMA_PSN_HALF)
		return;
	resp->is_ack_pending = resp->is_ack_lazy = false;
	resp->lazy_acks = 0;
	LDMA_COUNT(qp, acks_coalesced);
}

static void finish(struct ldma_qp *qp, struct ldma_resource *resource)
{
	resource->is_pending = false;
	resource->was_answered = true;
	qp->resp.pending--;
}

static size_t transmit_atomic(struct ldma_qp *qp, struct ldma_resource *resource, uint8_t *buf)
{
	struct ldma_packet packet;

	ldma_qp_start_packet(qp, &qp->attr.path, LDMA_OPCODE_RC_ATOMIC_ACKNOWLEDGE, resource->psn,
			     &packet);
	packet.syndrome = LDMA_SYNDROME_ACK;
	packet.msn = qp->resp.msn;
	packet.original = resource->original;
	drop_implied_acknowledge(qp, resource->psn);
	finish(qp, resource);
	return ldma_packet_encode(&packet, NULL, 0, buf, LDMA_PACKET_MAX);
}

static size_t transmit_read(struct ldma_qp *qp, struct ldma_resource *resource, uint8_t *buf,
			    uint64_t now_ns)
{
	static const uint8_t opcodes[] = {
		LDMA_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE, LDMA_OPCODE_RC_RDMA_READ_RESPONSE_LAST,
		LDMA_OPCODE_RC_RDMA_READ_RESPONSE_FIRST, LDMA_OPCODE_RC_RDMA_READ_RESPONSE_ONLY};
	uint32_t mtu = qp->attr.mtu, offset = resource->sent * mtu;
	uint32_t left = resource->from_length - offset, length = left < mtu ? left : mtu;
	bool is_first = !resource->sent, is_last = left <= mtu;
	uint32_t psn = (resource->psn + resource->sent) & LDMA_PSN_MASK;
	enum ldma_iova_result result = LDMA_IOVA_OK;
	struct ldma_iova *iova = &qp->device->iova;
	uint64_t va = resource->from_va + offset;
	struct ldma_packet packet;
	uint8_t *payload;

	ldma_qp_start_packet(qp, &qp->attr.path, opcodes[is_last + 2 * is_first], psn, &packet);
	payload = buf + ldma_packet_payload_offset(&packet);
	if (length)
		result = ldma_iova_read(iova, qp->pd, resource->rkey, va, payload, length,
					LDMA_ACCESS_REMOTE_READ);
	if (result == LDMA_IOVA_ABSENT) {
		ldma_iova_fault(iova, qp->pd, resource->rkey, va, left, LDMA_ACCESS_REMOTE_READ);
		ldma_qp_wait_for_page(qp, LDMA_WAIT_RESPONSES, now_ns);
		return 0;
	}
	if (result == LDMA_IOVA_DENIED) { /* the region has gone since the request */
		LDMA_COUNT(qp, remote_access_err);
		qp->resp.pending = 0;
		ldma_responder_refuse(qp, psn, LDMA_SYNDROME_NAK_ACCESS);
		return 0;
	}
	packet.syndrome = LDMA_SYNDROME_ACK;
	packet.msn = qp->resp.msn;
	LDMA_COUNT_BY(qp, sent_bytes, length);
	drop_implied_acknowledge(qp, psn);
	resource->sent++;
	if (is_last)
		finish(qp, resource);
	return ldma_packet_encode(&packet, payload, length, buf, LDMA_PACKET_MAX);
}

static size_t transmit_acknowledge(struct ldma_qp *qp, uint8_t *buf)
{
	struct ldma_packet packet;

	ldma_qp_start_packet(qp, &qp->attr.path, LDMA_OPCODE_RC_ACKNOWLEDGE, qp->resp.ack_psn,
			     &packet);
	packet.syndrome = qp->resp.ack_syndrome;
	packet.msn = qp->resp.msn;
	qp->resp.is_ack_pending = false;
	qp->resp.lazy_acks = 0;
	return ldma_packet_encode(&packet, NULL, 0, buf, LDMA_PACKET_MAX);
}

size_t ldma_responder_transmit(struct ldma_qp *qp, uint8_t *buf, uint64_t now_ns)
{
	struct ldma_responder *resp = &qp->resp;
	uint32_t size = qp->attr.max_dest_rd_atomic;

	if (qp->page_waits & LDMA_WAIT_RESPONSES)
		return 0;
	for (uint32_t i = 0; resp->pending && i < size; i++) { /* from the oldest on */
		struct ldma_resource *resource = &resp->resources[(resp->newest + i) % size];
		size_t length = 0;

		if (resource->is_pending)
			length = resource->operation == LDMA_OP_READ
					 ? transmit_read(qp, resource, buf, now_ns)
					 : transmit_atomic(qp, resource, buf);
		if (length || (qp->page_waits & LDMA_WAIT_RESPONSES))
			return length;
	}
	return resp->is_ack_pending && !resp->is_ack_lazy ? transmit_acknowledge(qp, buf) : 0;
}
