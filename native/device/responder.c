/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/responder.h"

#include "device/device.h"
#include "device/responder_request.h"

#define LAZY_ACKS 8 /* after so many messages one ACK of them all has to go */

static bool is_atomic(const struct peer_request *r)
{
	return r->info->operation == LDMA_OP_COMPARE_SWAP ||
	       r->info->operation == LDMA_OP_FETCH_ADD;
}

/* A Receive that was begun stays for the next message. */
static void abandon_message(struct ldma_qp *qp)
{
	qp->resp.operation = LDMA_OP_UNKNOWN;
	qp->resp.recv_offset = 0;
}

static enum step check_psn(struct peer_request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	uint32_t ahead = (r->packet->psn - resp->epsn) & LDMA_PSN_MASK;

	if (ldma_qp_is_datagram(r->qp))
		return CHECK_OPCODE;
	if (r->qp->type == LDMA_QP_UC) {
		if (ahead) { /* a loss: the rest of that message is dropped (IBA 9.8.2) */
			abandon_message(r->qp);
			LDMA_COUNT(r->qp, out_of_sequence);
			resp->epsn = r->packet->psn;
		}
		return CHECK_OPCODE;
	}
	if (!ahead) {
		resp->has_nak_sent = false;
		return CHECK_OPCODE;
	}
	if (ahead >= LDMA_PSN_HALF) {
		LDMA_COUNT(r->qp, duplicate_request);
		ldma_responder_repeat(r->qp, r->packet, r->info);
		return DONE;
	}
	LDMA_COUNT(r->qp, out_of_sequence);
	if (!resp->has_nak_sent) { /* one NAK until the expected packet comes (IBA 9.7.4.1) */
		resp->has_nak_sent = true;
		LDMA_COUNT(r->qp, out_of_seq_request);
		ldma_responder_acknowledge(r->qp, resp->epsn, LDMA_SYNDROME_NAK_SEQUENCE);
	}
	return DONE;
}

/* IBA 9.7.4.1.2: operations and their parts in the right order, and enabled. */
static enum step check_opcode(struct peer_request *r)
{
	struct ldma_qp *qp = r->qp;
	uint32_t needed = 0;

	if (qp->type == LDMA_QP_UC && (r->info->role & LDMA_ROLE_FIRST))
		abandon_message(qp);
	if (r->info->role & LDMA_ROLE_FIRST ? qp->resp.operation != LDMA_OP_UNKNOWN
					    : qp->resp.operation != r->info->operation)
		return REFUSE_INVALID;
	switch (r->info->operation) {
	case LDMA_OP_SEND:
		break;
	case LDMA_OP_WRITE:
		needed = LDMA_ACCESS_REMOTE_WRITE;
		break;
	case LDMA_OP_READ:
		needed = LDMA_ACCESS_REMOTE_READ;
		break;
	case LDMA_OP_COMPARE_SWAP:
	case LDMA_OP_FETCH_ADD:
		needed = LDMA_ACCESS_REMOTE_ATOMIC;
		break;
	default:
		return REFUSE_INVALID;
	}
	return needed & ~qp->attr.access ? REFUSE_INVALID : CHECK_LENGTH;
}

/* IBA 9.7.4.1.6: first and middle packets are full, a last one is not empty, a WRITE is as long as it said. */
static enum step check_length(struct peer_request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	uint32_t mtu = r->qp->attr.mtu, length = r->packet->payload_length;
	uint8_t role = r->info->role;

	if (length > mtu || (!(role & LDMA_ROLE_LAST) && length != mtu) ||
	    ((role & LDMA_ROLE_ONLY) == LDMA_ROLE_LAST && !length))
		return REFUSE_INVALID;
	if ((r->info->headers & LDMA_HAS_RETH) && r->packet->dma_length > LDMA_MAX_MESSAGE)
		return REFUSE_INVALID;
	if (r->info->operation == LDMA_OP_WRITE) {
		uint32_t left = role & LDMA_ROLE_FIRST ? r->packet->dma_length : resp->write_left;

		if (role & LDMA_ROLE_LAST ? length != left : length >= left)
			return REFUSE_INVALID;
	}
	if (is_atomic(r) && r->packet->va & 7) /* IBA 9.4.5 */
		return REFUSE_INVALID;
	return CHECK_RIGHTS;
}

/* IBA 9.7.4.1.5: the whole range is checked before the first byte moves; one of no bytes is not checked. */
static enum step check_rights(struct peer_request *r)
{
	static const uint32_t rights[LDMA_OP_COUNT] = {
		[LDMA_OP_WRITE] = LDMA_ACCESS_REMOTE_WRITE,
		[LDMA_OP_READ] = LDMA_ACCESS_REMOTE_READ,
		[LDMA_OP_COMPARE_SWAP] = LDMA_ACCESS_REMOTE_ATOMIC,
		[LDMA_OP_FETCH_ADD] = LDMA_ACCESS_REMOTE_ATOMIC,
	};
	const struct ldma_iova *iova = &r->qp->device->iova;
	uint32_t needed = rights[r->info->operation];

	if (needed && (r->info->headers & (LDMA_HAS_RETH | LDMA_HAS_ATOMICETH))) {
		uint32_t length = is_atomic(r) ? 8 : r->packet->dma_length;

		if (length && ldma_iova_check(iova, r->qp->pd, r->packet->rkey, r->packet->va,
					      length, needed) != LDMA_IOVA_OK)
			return REFUSE_ACCESS;
	}
	if ((r->info->headers & LDMA_HAS_IETH) &&
	    !ldma_iova_may_invalidate(iova, r->qp->pd, r->packet->inv_rkey))
		return REFUSE_ACCESS;
	return TAKE_RECEIVE;
}

static enum step take_receive(struct peer_request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	bool is_needed =
		r->info->operation == LDMA_OP_SEND ||
		(r->info->operation == LDMA_OP_WRITE && (r->info->headers & LDMA_HAS_IMMDT));

	if (is_needed && !resp->has_recv)
		resp->has_recv = ldma_qp_take_recv(r->qp, &resp->recv);
	return !is_needed || resp->has_recv ? EXECUTE : NOT_READY;
}

static void complete_receive(struct peer_request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	bool is_send = r->info->operation == LDMA_OP_SEND;
	struct ldma_wc wc = {
		.opcode = is_send ? LDMA_WC_RECV : LDMA_WC_RECV_RDMA_WITH_IMM,
		.byte_length = is_send ? resp->recv_offset : resp->write_length,
		.is_solicited = ldma_packet_solicited(r->packet),
		.src_qp = r->qp->attr.dest_qp,
	};

	if (r->info->headers & LDMA_HAS_IMMDT) {
		wc.flags |= LDMA_WC_WITH_IMM;
		wc.imm = r->packet->imm;
	}
	if (r->info->headers & LDMA_HAS_IETH) {
		ldma_iova_invalidate(&r->qp->device->iova, r->packet->inv_rkey);
		wc.flags |= LDMA_WC_WITH_INV;
		wc.imm = r->packet->inv_rkey;
	}
	if (ldma_qp_is_datagram(r->qp)) {
		wc.flags |= LDMA_WC_GRH;
		wc.src_qp = r->packet->src_qp;
	}
	LDMA_COUNT(r->qp, rdma_recvs);
	ldma_qp_complete_recv(r->qp, &wc);
}

/* The ACK at a message's end can wait for more urgent packets, unless an earlier ACK is urgent or LAZY_ACKS have
 * waited. The receiver of a message is likely to answer it. Only the peer knows of a WRITE, and it waits for the
 * ACK. */
static void acknowledge(struct peer_request *r, bool has_received)
{
	struct ldma_responder *resp = &r->qp->resp;
	bool is_urgent = resp->is_ack_pending && !resp->is_ack_lazy;

	ldma_responder_acknowledge(r->qp, r->packet->psn, LDMA_SYNDROME_ACK);
	resp->is_ack_lazy =
		(r->info->role & LDMA_ROLE_LAST) && !is_urgent && ++resp->lazy_acks < LAZY_ACKS;
	if (!has_received)
		r->qp->device->is_ack_awaited = true;
}

static enum step complete(struct peer_request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	bool has_received = false;

	resp->epsn = (r->packet->psn + r->count) & LDMA_PSN_MASK;
	if (r->info->role & LDMA_ROLE_LAST) {
		has_received =
			r->info->operation == LDMA_OP_SEND || (r->info->headers & LDMA_HAS_IMMDT);
		if (has_received)
			complete_receive(r);
		if (r->qp->has_overrun && r->qp->type == LDMA_QP_RC)
			return REFUSE_OPERATION; /* the message's completion was lost */
		resp->operation = LDMA_OP_UNKNOWN;
		resp->msn = (resp->msn + 1) & LDMA_PSN_MASK;
	}
	if (r->qp->type == LDMA_QP_RC && (r->info->role & LDMA_ROLE_PAYLOAD) && r->packet->ack_req)
		acknowledge(r, has_received);
	return DONE;
}

/* UC and UD have no answers: the message is dropped, the connection goes on (IBA 9.9.3, class D). */
static enum step drop(struct peer_request *r)
{
	abandon_message(r->qp);
	r->qp->resp.epsn = (r->packet->psn + 1) & LDMA_PSN_MASK;
	LDMA_COUNT(r->qp, dropped_request);
	return DONE;
}

static enum step refuse(struct peer_request *r, uint8_t syndrome)
{
	if (r->qp->type != LDMA_QP_RC)
		return DROP;
	ldma_responder_refuse(r->qp, r->packet->psn, syndrome);
	return DONE;
}

static enum step refuse_invalid(struct peer_request *r)
{
	LDMA_COUNT(r->qp, remote_invalid_req_err);
	return refuse(r, LDMA_SYNDROME_NAK_INVALID);
}

static enum step refuse_access(struct peer_request *r)
{
	LDMA_COUNT(r->qp, remote_access_err);
	return refuse(r, LDMA_SYNDROME_NAK_ACCESS);
}

static enum step refuse_operation(struct peer_request *r)
{
	LDMA_COUNT(r->qp, remote_op_err);
	return refuse(r, LDMA_SYNDROME_NAK_OPERATION);
}

static enum step not_ready(struct peer_request *r)
{
	if (r->qp->type != LDMA_QP_RC)
		return DROP;
	LDMA_COUNT(r->qp, send_rnr_err);
	r->qp->resp.has_nak_sent = true; /* no NAK for what follows out of sequence */
	ldma_responder_acknowledge(r->qp, r->packet->psn,
				   LDMA_SYNDROME_RNR | r->qp->attr.min_rnr_timer);
	return DONE;
}

/* The peer tries again when the page has been filled, as it would for a missing Receive. */
static enum step page_absent(struct peer_request *r)
{
	if (r->qp->type == LDMA_QP_RC)
		LDMA_COUNT(r->qp, page_naks);
	else
		LDMA_COUNT(r->qp, page_drops);
	return NOT_READY;
}

void ldma_responder_receive(struct ldma_qp *qp, const struct ldma_packet *packet)
{
	static enum step (*const steps[])(struct peer_request *) = {
		[CHECK_PSN] = check_psn,
		[CHECK_OPCODE] = check_opcode,
		[CHECK_LENGTH] = check_length,
		[CHECK_RIGHTS] = check_rights,
		[TAKE_RECEIVE] = take_receive,
		[EXECUTE] = ldma_responder_execute,
		[COMPLETE] = complete,
		[REFUSE_INVALID] = refuse_invalid,
		[REFUSE_ACCESS] = refuse_access,
		[REFUSE_OPERATION] = refuse_operation,
		[NOT_READY] = not_ready,
		[PAGE_ABSENT] = page_absent,
		[DROP] = drop,
	};
	struct peer_request r = {
		.qp = qp,
		.packet = packet,
		.info = &ldma_opcodes[packet->opcode],
		.payload = packet->frame + packet->payload_offset,
		.count = 1,
	};

	for (enum step step = CHECK_PSN; step != DONE;)
		step = steps[step](&r);
}
