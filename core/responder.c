#include "responder.h"

#include <string.h>

#include "device.h"

#define LAZY_ACKS 8 /* messages received before one ACK of them all has to go */

/* What to do next with a request. */
enum step {
	CHECK_PSN,
	CHECK_OPCODE,
	CHECK_LENGTH,
	CHECK_RIGHTS,
	TAKE_RECEIVE,
	EXECUTE,
	COMPLETE,
	REFUSE_INVALID, /* the last words of a connection */
	REFUSE_ACCESS,
	REFUSE_OPERATION,
	NOT_READY,
	DROP,
	DONE,
};

struct request {
	struct ldma_qp *qp;
	const struct ldma_packet *packet;
	const struct ldma_opcode_info *info;
	const uint8_t *payload;
	uint32_t count; /* PSNs that it takes */
};

static bool is_atomic(const struct request *r)
{
	return r->info->operation == LDMA_OP_COMPARE_SWAP ||
	       r->info->operation == LDMA_OP_FETCH_ADD;
}

/* A Receive that was begun is kept for the next message. */
static void abandon_message(struct ldma_qp *qp)
{
	qp->resp.operation = LDMA_OP_UNKNOWN;
	qp->resp.recv_offset = 0;
}

static enum step check_psn(struct request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	uint32_t ahead = (r->packet->psn - resp->epsn) & LDMA_PSN_MASK;

	if (ldma_qp_is_datagram(r->qp))
		return CHECK_OPCODE;
	if (r->qp->type == LDMA_QP_UC) {
		if (ahead) { /* lost: the rest of that message is of no use (IBA 9.8.2) */
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
	if (!resp->has_nak_sent) { /* one NAK, then silence until the expected one comes (IBA 9.7.4.1) */
		resp->has_nak_sent = true;
		LDMA_COUNT(r->qp, out_of_seq_request);
		ldma_responder_acknowledge(r->qp, resp->epsn, LDMA_SYNDROME_NAK_SEQUENCE);
	}
	return DONE;
}

/* IBA 9.7.4.1.2: operations and their parts in the right order, and enabled. */
static enum step check_opcode(struct request *r)
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
static enum step check_length(struct request *r)
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
static enum step check_rights(struct request *r)
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

static enum step take_receive(struct request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	bool is_needed =
		r->info->operation == LDMA_OP_SEND ||
		(r->info->operation == LDMA_OP_WRITE && (r->info->headers & LDMA_HAS_IMMDT));

	if (is_needed && !resp->has_recv)
		resp->has_recv = ldma_qp_take_recv(r->qp, &resp->recv);
	return !is_needed || resp->has_recv ? EXECUTE : NOT_READY;
}

/* The Receive cannot take the message: it completes with an error, and so does the connection. */
static enum step fail_receive(struct request *r, enum ldma_wc_status status, enum step refusal)
{
	struct ldma_wc wc = {.status = (uint8_t)status, .opcode = LDMA_WC_RECV};

	ldma_qp_complete_recv(r->qp, &wc);
	if (r->qp->type == LDMA_QP_RC)
		return refusal;
	ldma_qp_enter_error(r->qp);
	return DONE;
}

static enum step execute_send(struct request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	struct ldma_iova *iova = &r->qp->device->iova;
	uint32_t length = r->packet->payload_length;

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
		if (ldma_sgl_scatter(iova, r->qp->rq->pd, resp->recv.sge, resp->recv.sge_count, 0,
				     LDMA_GRH_BYTES, grh) != LDMA_IOVA_OK)
			return fail_receive(r, LDMA_WC_LOC_PROT_ERR, REFUSE_OPERATION);
		resp->recv_offset = LDMA_GRH_BYTES;
	}
	if (length > resp->recv.length - resp->recv_offset) /* IBA 9.7.4.1.6 */
		return fail_receive(r, LDMA_WC_LOC_LEN_ERR, REFUSE_INVALID);
	if (ldma_sgl_scatter(iova, r->qp->rq->pd, resp->recv.sge, resp->recv.sge_count,
			     resp->recv_offset, length, r->payload) != LDMA_IOVA_OK)
		return fail_receive(r, LDMA_WC_LOC_PROT_ERR, REFUSE_OPERATION);
	resp->recv_offset += length;
	resp->operation = LDMA_OP_SEND;
	return COMPLETE;
}

static enum step execute_write(struct request *r)
{
	struct ldma_responder *resp = &r->qp->resp;
	uint32_t length = r->packet->payload_length;

	if (r->info->role & LDMA_ROLE_FIRST) {
		resp->write_va = r->packet->va;
		resp->write_rkey = r->packet->rkey;
		resp->write_left = resp->write_length = r->packet->dma_length;
	}
	/* The region may have gone since the first packet. */
	if (length &&
	    ldma_iova_write(&r->qp->device->iova, r->qp->pd, resp->write_rkey, resp->write_va,
			    r->payload, length, LDMA_ACCESS_REMOTE_WRITE) != LDMA_IOVA_OK)
		return REFUSE_ACCESS;
	resp->write_va += length;
	resp->write_left -= length;
	resp->operation = LDMA_OP_WRITE;
	return COMPLETE;
}

static enum step execute_read(struct request *r)
{
	uint32_t mtu = r->qp->attr.mtu;

	if (r->packet->dma_length > mtu)
		r->count = (r->packet->dma_length - 1) / mtu + 1;
	return ldma_responder_reserve(r->qp, r->packet, LDMA_OP_READ, r->count) ? COMPLETE
										: REFUSE_INVALID;
}

static uint64_t change(uint64_t old, const void *context)
{
	const struct request *r = context;

	if (r->info->operation == LDMA_OP_FETCH_ADD)
		return old + r->packet->swap_add;
	return old == r->packet->compare ? r->packet->swap_add : old;
}

static enum step execute_atomic(struct request *r)
{
	struct ldma_resource *resource =
		ldma_responder_reserve(r->qp, r->packet, r->info->operation, 1);

	if (!resource)
		return REFUSE_INVALID;
	if (ldma_iova_atomic(&r->qp->device->iova, r->qp->pd, r->packet->rkey, r->packet->va,
			     change, r, &resource->original) != LDMA_IOVA_OK) {
		ldma_responder_withdraw(r->qp, resource);
		return REFUSE_ACCESS;
	}
	return COMPLETE;
}

static enum step execute(struct request *r)
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

static void complete_receive(struct request *r)
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

/* The ACK at a message's end can wait a little for what is more urgent, unless one before it is urgent itself or many
 * have waited. Who received the message is likely to answer it; of a WRITE only the peer knows, and waits. */
static void acknowledge(struct request *r, bool has_received)
{
	struct ldma_responder *resp = &r->qp->resp;
	bool is_urgent = resp->is_ack_pending && !resp->is_ack_lazy;

	ldma_responder_acknowledge(r->qp, r->packet->psn, LDMA_SYNDROME_ACK);
	resp->is_ack_lazy =
		(r->info->role & LDMA_ROLE_LAST) && !is_urgent && ++resp->lazy_acks < LAZY_ACKS;
	if (!has_received)
		r->qp->device->is_ack_awaited = true;
}

static enum step complete(struct request *r)
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
			return REFUSE_OPERATION; /* nobody will hear of the message */
		resp->operation = LDMA_OP_UNKNOWN;
		resp->msn = (resp->msn + 1) & LDMA_PSN_MASK;
	}
	if (r->qp->type == LDMA_QP_RC && (r->info->role & LDMA_ROLE_PAYLOAD) && r->packet->ack_req)
		acknowledge(r, has_received);
	return DONE;
}

/* UC and UD have no answers: the message is forgotten, the connection goes on (IBA 9.9.3, class D). */
static enum step drop(struct request *r)
{
	abandon_message(r->qp);
	r->qp->resp.epsn = (r->packet->psn + 1) & LDMA_PSN_MASK;
	LDMA_COUNT(r->qp, dropped_request);
	return DONE;
}

static enum step refuse(struct request *r, uint8_t syndrome)
{
	if (r->qp->type != LDMA_QP_RC)
		return DROP;
	ldma_responder_refuse(r->qp, r->packet->psn, syndrome);
	return DONE;
}

static enum step refuse_invalid(struct request *r)
{
	LDMA_COUNT(r->qp, remote_invalid_req_err);
	return refuse(r, LDMA_SYNDROME_NAK_INVALID);
}

static enum step refuse_access(struct request *r)
{
	LDMA_COUNT(r->qp, remote_access_err);
	return refuse(r, LDMA_SYNDROME_NAK_ACCESS);
}

static enum step refuse_operation(struct request *r)
{
	LDMA_COUNT(r->qp, remote_op_err);
	return refuse(r, LDMA_SYNDROME_NAK_OPERATION);
}

static enum step not_ready(struct request *r)
{
	if (r->qp->type != LDMA_QP_RC)
		return DROP;
	LDMA_COUNT(r->qp, send_rnr_err);
	r->qp->resp.has_nak_sent = true; /* what follows is out of sequence, and known to be */
	ldma_responder_acknowledge(r->qp, r->packet->psn,
				   LDMA_SYNDROME_RNR | r->qp->attr.min_rnr_timer);
	return DONE;
}

void ldma_responder_receive(struct ldma_qp *qp, const struct ldma_packet *packet)
{
	static enum step (*const steps[])(struct request *) = {
		[CHECK_PSN] = check_psn,         [CHECK_OPCODE] = check_opcode,
		[CHECK_LENGTH] = check_length,   [CHECK_RIGHTS] = check_rights,
		[TAKE_RECEIVE] = take_receive,   [EXECUTE] = execute,
		[COMPLETE] = complete,           [REFUSE_INVALID] = refuse_invalid,
		[REFUSE_ACCESS] = refuse_access, [REFUSE_OPERATION] = refuse_operation,
		[NOT_READY] = not_ready,         [DROP] = drop,
	};
	struct request r = {
		.qp = qp,
		.packet = packet,
		.info = &ldma_opcodes[packet->opcode],
		.payload = packet->frame + packet->payload_offset,
		.count = 1,
	};

	for (enum step step = CHECK_PSN; step != DONE;)
		step = steps[step](&r);
}
