/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/requester.h"

#include "device/device.h"

#define ACK_INTERVAL 16 /* the most packets of a long message between two requests for an ACK */

/* The opcode without its transport, indexed by is_last + 2 * is_first. */
enum { MIDDLE, LAST, FIRST, ONLY };
static const uint8_t opcodes[][4] = {
	[LDMA_WR_SEND] = {0x01, 0x02, 0x00, 0x04},
	[LDMA_WR_SEND_WITH_IMM] = {0x01, 0x03, 0x00, 0x05},
	[LDMA_WR_SEND_WITH_INV] = {0x01, 0x16, 0x00, 0x17},
	[LDMA_WR_RDMA_WRITE] = {0x07, 0x08, 0x06, 0x0a},
	[LDMA_WR_RDMA_WRITE_WITH_IMM] = {0x07, 0x09, 0x06, 0x0b},
	[LDMA_WR_RDMA_READ] = {0x0c, 0x0c, 0x0c, 0x0c}, /* each part is a request of its own */
	[LDMA_WR_ATOMIC_CMP_AND_SWP] = {[ONLY] = 0x13},
	[LDMA_WR_ATOMIC_FETCH_AND_ADD] = {[ONLY] = 0x14},
};

static uint8_t wire_opcode(const struct ldma_qp *qp, const struct ldma_send_wqe *wqe, bool is_first,
			   bool is_last)
{
	static const uint8_t base[] = {
		[LDMA_QP_GSI] = LDMA_TRANSPORT_UD << 5,
		[LDMA_QP_RC] = LDMA_TRANSPORT_RC << 5,
		[LDMA_QP_UC] = LDMA_TRANSPORT_UC << 5,
		[LDMA_QP_UD] = LDMA_TRANSPORT_UD << 5,
	};

	return base[qp->type] | opcodes[wqe->opcode][is_last + 2 * is_first];
}

static bool may_send(const struct ldma_qp *qp, const struct ldma_send_wqe *wqe)
{
	const struct ldma_requester *req = &qp->req;
	uint32_t window = req->congestion.packets;

	/* A draining queue finishes what it began (IBA 10.3.1.5). */
	if (qp->state != LDMA_QP_RTS &&
	    !(qp->state == LDMA_QP_SQD && wqe->first_psn < req->sent_end))
		return false;
	if (req->is_rnr_waiting || wqe->status != LDMA_WC_SUCCESS ||
	    (qp->page_waits & LDMA_WAIT_REQUESTS))
		return false;
	/* A fence waits for the READs and atomics before it (IBA 10.8.3.3). */
	if ((wqe->flags & LDMA_SEND_FENCE) && req->rd_outstanding && req->next == wqe->first_psn)
		return false;
	/* Responses count as in flight from their request on; a single request may exceed the window. */
	if (ldma_wqe_needs_response(wqe))
		return req->rd_outstanding < qp->attr.max_rd_atomic &&
		       (req->next == req->una ||
			ldma_response_end(qp, wqe, req->next) - req->una <= window);
	/* A full window moves when an answer comes. One that has shrunk may be full of packets that asked for none:
	 * then one more may go. */
	return req->next - req->una < window || req->asked <= req->una;
}

/* Asks at a message's end, and as soon as half of the window is in flight without: the other half goes while the ACK
 * comes. */
static bool asks_for_ack(const struct ldma_qp *qp, uint64_t end, bool is_last)
{
	uint64_t unasked = end - qp->req.asked;

	return qp->type == LDMA_QP_RC &&
	       (is_last || unasked >= ACK_INTERVAL || unasked * 2 >= qp->req.congestion.packets);
}

/* Sets *ret to the packet's part of the message; copies it to its place in buf unless it is inline data. */
static enum ldma_iova_result gather(const struct ldma_qp *qp, const struct ldma_send_wqe *wqe,
				    const struct ldma_packet *packet, uint32_t offset,
				    uint32_t length, uint8_t *buf, const uint8_t **ret)
{
	uint8_t *payload = buf + ldma_packet_payload_offset(packet);

	if (wqe->flags & LDMA_SEND_INLINE) {
		*ret = (const uint8_t *)wqe->sge + offset;
		return LDMA_IOVA_OK;
	}
	*ret = payload;
	return ldma_sgl_gather(&qp->device->iova, qp->pd, wqe->sge, wqe->sge_count, offset, length,
			       payload);
}

/* Handles a packet that cannot go: it waits for a page, or its request has failed. */
static void hold(struct ldma_qp *qp, struct ldma_send_wqe *wqe, enum ldma_iova_result result,
		 uint32_t offset, uint64_t now_ns)
{
	if (result == LDMA_IOVA_ABSENT) {
		ldma_requester_wait_for_page(qp, wqe, offset, now_ns);
		return;
	}
	/* Requests complete in order: those before it complete first (IBA 10.8.3). */
	wqe->status = LDMA_WC_LOC_PROT_ERR;
	if (qp->req.cursor == qp->req.head)
		ldma_qp_fail_send(qp, LDMA_WC_LOC_PROT_ERR);
}

void ldma_requester_wait_for_page(struct ldma_qp *qp, const struct ldma_send_wqe *wqe,
				  uint32_t offset, uint64_t now_ns)
{
	uint32_t access =
		ldma_wqe_needs_response(wqe) ? LDMA_ACCESS_LOCAL_WRITE : LDMA_ACCESS_LOCAL_READ;

	ldma_sgl_fault(&qp->device->iova, qp->pd, wqe->sge, wqe->sge_count, offset,
		       wqe->length - offset, access);
	ldma_qp_wait_for_page(qp, LDMA_WAIT_REQUESTS, now_ns);
}

/* end: the PSN after the packet's last. */
static void fill_headers(const struct ldma_qp *qp, const struct ldma_send_wqe *wqe, uint64_t end,
			 bool is_last, struct ldma_packet *packet)
{
	uint32_t mtu = qp->attr.mtu, offset = (uint32_t)(qp->req.next - wqe->first_psn) * mtu;

	packet->va = wqe->remote_va + offset;
	packet->rkey = wqe->rkey;
	packet->dma_length = wqe->length - offset;
	if (wqe->opcode == LDMA_WR_RDMA_READ && end != wqe->end_psn)
		packet->dma_length = (uint32_t)(end - qp->req.next) * mtu;
	packet->compare = wqe->compare;
	packet->swap_add = wqe->swap_add;
	packet->imm = wqe->imm;
	packet->inv_rkey = wqe->imm;
	if (is_last && (wqe->flags & LDMA_SEND_SOLICITED))
		packet->flags |= 0x80;
	if (ldma_qp_is_datagram(qp)) {
		packet->dest_qp = wqe->remote_qp;
		packet->src_qp = qp->number;
		/* The high bit stands for the queue pair's own key (IBA 11.4.1.1). */
		packet->qkey = wqe->remote_qkey >> 31 ? qp->attr.qkey : wqe->remote_qkey;
	}
}

/* Takes note that the packet with the PSNs up to end is out: moves next and the cursor, starts the timer. */
static void advance(struct ldma_qp *qp, const struct ldma_send_wqe *wqe, uint64_t end,
		    uint64_t now_ns)
{
	struct ldma_requester *req = &qp->req;
	bool is_done = end == wqe->end_psn;

	req->next = end;
	if (req->sent_end < req->next)
		req->sent_end = req->next;
	if (qp->type != LDMA_QP_RC) {
		req->una = req->next;
		if (is_done)
			ldma_qp_complete_send(qp, LDMA_WC_SUCCESS);
		return;
	}
	if (ldma_wqe_needs_response(wqe))
		req->rd_outstanding++;
	if (is_done)
		req->cursor++;
	if (qp->timer.deadline_ns == LDMA_NEVER)
		ldma_requester_restart_timer(qp, now_ns);
}

size_t ldma_requester_transmit(struct ldma_qp *qp, uint8_t *buf, uint64_t now_ns)
{
	struct ldma_requester *req = &qp->req;
	struct ldma_send_wqe *wqe = ldma_qp_wqe(qp, req->cursor);
	bool is_first, is_last, has_payload;
	const struct ldma_path *path;
	struct ldma_packet packet;
	const uint8_t *payload = NULL;
	uint32_t offset, length = 0;
	enum ldma_iova_result result;
	uint64_t end;
	size_t encoded;

	if (req->cursor == req->tail || !may_send(qp, wqe))
		return 0;
	has_payload = !ldma_wqe_needs_response(wqe);
	end = has_payload ? req->next + 1 : ldma_response_end(qp, wqe, req->next);
	is_first = req->next == wqe->first_psn;
	is_last = end == wqe->end_psn;
	offset = (uint32_t)(req->next - wqe->first_psn) * qp->attr.mtu;
	path = ldma_qp_is_datagram(qp) ? ldma_qp_wqe_path(qp, req->cursor) : &qp->attr.path;
	ldma_qp_start_packet(qp, path, wire_opcode(qp, wqe, is_first, is_last), (uint32_t)req->next,
			     &packet);
	fill_headers(qp, wqe, end, is_last, &packet);
	if (has_payload) {
		length = wqe->length - offset < qp->attr.mtu ? wqe->length - offset : qp->attr.mtu;
		result = gather(qp, wqe, &packet, offset, length, buf, &payload);
		packet.ack_req = asks_for_ack(qp, end, is_last);
	} else { /* the responses' memory has to be there when they come */
		result = ldma_sgl_look(&qp->device->iova, qp->pd, wqe->sge, wqe->sge_count, offset,
				       packet.dma_length);
	}
	if (result != LDMA_IOVA_OK) {
		hold(qp, wqe, result, offset, now_ns);
		return 0;
	}
	if (!has_payload || packet.ack_req)
		req->asked = end;
	encoded = ldma_packet_encode(&packet, payload, length, buf, LDMA_PACKET_MAX);
	LDMA_COUNT_BY(qp, sent_bytes, length);
	advance(qp, wqe, end, now_ns);
	return encoded;
}

void ldma_requester_rewind(struct ldma_qp *qp)
{
	qp->req.next = qp->req.una;
	qp->req.cursor = qp->req.head;
	qp->req.rd_outstanding = 0;
	qp->req.asked = qp->req.una;
	ldma_device_schedule(qp);
}

/* A peer that is silent for long is more likely to be busy than to have lost every packet: later timeouts are longer,
 * up to the fourfold that IBA 9.7.6.1.3 allows. */
static uint32_t backoff(const struct ldma_qp *qp)
{
	uint32_t used = (uint32_t)qp->attr.retry_count - qp->req.retry_left;

	return used < 2 ? used : 2;
}

void ldma_requester_restart_timer(struct ldma_qp *qp, uint64_t now_ns)
{
	uint64_t deadline_ns = LDMA_NEVER;

	if (qp->attr.timeout && qp->req.una < qp->req.next)
		deadline_ns = now_ns + (UINT64_C(4096) << (qp->attr.timeout + backoff(qp)));
	ldma_timer_set(&qp->device->timers, &qp->timer, deadline_ns);
}

void ldma_requester_expire(struct ldma_timer *timer)
{
	struct ldma_qp *qp = (struct ldma_qp *)((char *)timer - offsetof(struct ldma_qp, timer));
	struct ldma_requester *req = &qp->req;

	if (req->is_rnr_waiting) {
		req->is_rnr_waiting = false;
		ldma_device_schedule(qp);
		return;
	}
	LDMA_COUNT(qp, ack_timeout);
	if (!req->retry_left) { /* IBA 9.9.2 */
		LDMA_COUNT(qp, retry_exceeded_err);
		ldma_qp_fail_send(qp, LDMA_WC_RETRY_EXC_ERR);
		return;
	}
	req->retry_left--;
	req->has_rewound = false;
	LDMA_COUNT(qp, completer_retry_err);
	LDMA_COUNT(qp, window_reduced);
	ldma_congestion_collapse(&req->congestion, req->sent_end);
	ldma_requester_rewind(qp);
}
