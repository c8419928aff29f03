/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/completer.h"

#include "device/device.h"
#include "device/requester.h"

/* PSNs from before up to una were acknowledged: counters, waits and the timer start anew (IBA 9.9.2). */
static void note_progress(struct ldma_qp *qp, uint64_t before, uint64_t now_ns)
{
	struct ldma_requester *req = &qp->req;

	ldma_congestion_grow(&req->congestion, req->una - before, req->next - before);
	if (req->next < req->una) /* an answer to what went before the last go-back */
		req->next = req->una;
	req->retry_left = qp->attr.retry_count;
	req->rnr_left = qp->attr.rnr_retry;
	req->has_rewound = false;
	req->is_rnr_waiting = false;
	ldma_requester_restart_timer(qp, now_ns);
}

/* Acknowledges the PSNs before end, up to the first READ or atomic: those need their responses. */
static void acknowledge(struct ldma_qp *qp, uint64_t end, uint64_t now_ns)
{
	struct ldma_requester *req = &qp->req;
	uint64_t before = req->una;

	while (req->una < end) {
		const struct ldma_send_wqe *wqe = ldma_qp_wqe(qp, req->head);

		if (ldma_wqe_needs_response(wqe))
			break;
		req->una = end < wqe->end_psn ? end : wqe->end_psn;
		if (req->una == wqe->end_psn)
			ldma_qp_complete_send(qp, LDMA_WC_SUCCESS);
	}
	if (req->una != before)
		note_progress(qp, before, now_ns);
}

/* Goes back to the oldest unacknowledged packet, once until una moves: packets that are still under way from before say
 * nothing new, and if the repetition is lost, too, the timer finds out. */
static void go_back(struct ldma_qp *qp, uint64_t now_ns)
{
	struct ldma_requester *req = &qp->req;

	if (req->has_rewound || req->next == req->una)
		return;
	if (!req->retry_left) {
		LDMA_COUNT(qp, retry_exceeded_err);
		ldma_qp_fail_send(qp, LDMA_WC_RETRY_EXC_ERR);
		return;
	}
	req->retry_left--;
	req->has_rewound = true;
	LDMA_COUNT(qp, completer_retry_err);
	if (ldma_congestion_halve(&req->congestion, req->una, req->sent_end))
		LDMA_COUNT(qp, window_reduced);
	ldma_requester_rewind(qp);
	ldma_requester_restart_timer(qp, now_ns);
}

/* The page for a response has gone since the request was sent: asks for the page, and requests the response again once
 * the page is there. */
static void give_up_response(struct ldma_qp *qp, const struct ldma_send_wqe *wqe, uint32_t offset,
			     uint64_t now_ns)
{
	ldma_requester_rewind(qp);
	qp->req.has_rewound = true; /* responses behind it are not lost, but cannot be used */
	ldma_requester_restart_timer(qp, now_ns);
	ldma_requester_wait_for_page(qp, wqe, offset, now_ns);
}

static void wait_for_receiver(struct ldma_qp *qp, uint8_t syndrome, uint64_t now_ns)
{
	struct ldma_requester *req = &qp->req;

	LDMA_COUNT(qp, rcvd_rnr_err);
	if (req->next == req->una) /* already waiting */
		return;
	if (!req->rnr_left) {
		LDMA_COUNT(qp, retry_rnr_exceeded_err);
		ldma_qp_fail_send(qp, LDMA_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->attr.rnr_retry != 7) /* IBA 9.7.5.2.8: 7 has no limit */
		req->rnr_left--;
	ldma_requester_rewind(qp);
	req->is_rnr_waiting = true;
	ldma_timer_set(&qp->device->timers, &qp->timer,
		       now_ns + ldma_rnr_timer_us(syndrome) * UINT64_C(1000));
}

static void take_nak(struct ldma_qp *qp, uint8_t syndrome, bool has_news, uint64_t now_ns)
{
	switch (syndrome) {
	case 0x60:
		LDMA_COUNT(qp, packet_seq_err);
		if (has_news)
			LDMA_COUNT(qp, rcvd_seq_err);
		go_back(qp, now_ns);
		break;
	case 0x61:
		ldma_qp_fail_send(qp, LDMA_WC_REM_INV_REQ_ERR);
		break;
	case 0x62:
		ldma_qp_fail_send(qp, LDMA_WC_REM_ACCESS_ERR);
		break;
	case 0x63:
		ldma_qp_fail_send(qp, LDMA_WC_REM_OP_ERR);
		break;
	default: /* reserved (IBA table 46) */
		LDMA_COUNT(qp, dropped_response);
	}
}

static void take_acknowledge(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t psn,
			     uint64_t now_ns)
{
	enum ldma_aeth_kind kind = ldma_aeth_kind(packet->syndrome);
	uint64_t end = kind == LDMA_AETH_ACK ? psn + 1 : psn; /* a NAK acknowledges all before it */
	bool has_news = end > qp->req.una;

	if (kind == LDMA_AETH_RESERVED || packet->syndrome >> 7) {
		LDMA_COUNT(qp, dropped_response);
		return;
	}
	acknowledge(qp, end, now_ns);
	if (qp->req.una < end) /* a response before it was lost (IBA 9.7.5.2) */
		go_back(qp, now_ns);
	else if (kind == LDMA_AETH_RNR_NAK)
		wait_for_receiver(qp, packet->syndrome, now_ns);
	else if (kind == LDMA_AETH_NAK)
		take_nak(qp, packet->syndrome, has_news, now_ns);
}

/* Returns whether the request at the head of the queue waits for this response at this PSN. */
static bool is_expected(const struct ldma_qp *qp, const struct ldma_send_wqe *wqe,
			const struct ldma_packet *packet, const struct ldma_opcode_info *info,
			uint64_t psn)
{
	uint32_t left = wqe->length - (uint32_t)(psn - wqe->first_psn) * qp->attr.mtu;
	bool is_first, is_last;

	if (!ldma_wqe_needs_response(wqe) || psn < wqe->first_psn)
		return false;
	is_first = psn == wqe->first_psn || psn == ldma_response_end(qp, wqe, psn - 1);
	is_last = psn + 1 == ldma_response_end(qp, wqe, psn);
	if ((info->headers & LDMA_HAS_AETH) && ldma_aeth_kind(packet->syndrome) != LDMA_AETH_ACK)
		return false;
	if (info->operation == LDMA_OP_ATOMIC_ACK)
		return wqe->opcode != LDMA_WR_RDMA_READ;
	/* A repetition that begins in the middle may begin with FIRST; rxe's does not. */
	if (is_first && !(info->role & LDMA_ROLE_FIRST))
		return false;
	return wqe->opcode == LDMA_WR_RDMA_READ && is_last == !!(info->role & LDMA_ROLE_LAST) &&
	       packet->payload_length == (left < qp->attr.mtu ? left : qp->attr.mtu);
}

static void take_response(struct ldma_qp *qp, const struct ldma_packet *packet,
			  const struct ldma_opcode_info *info, uint64_t psn, uint64_t now_ns)
{
	const uint8_t *data = packet->frame + packet->payload_offset;
	uint32_t length = packet->payload_length;
	struct ldma_requester *req = &qp->req;
	const struct ldma_send_wqe *wqe;
	uint32_t offset;

	acknowledge(qp, psn, now_ns);
	if (req->una < psn) { /* responses before it are missing (IBA 9.7.5.2) */
		go_back(qp, now_ns);
		return;
	}
	wqe = ldma_qp_wqe(qp, req->head);
	if (!is_expected(qp, wqe, packet, info, psn)) {
		LDMA_COUNT(qp, dropped_response);
		return;
	}
	if (info->operation == LDMA_OP_ATOMIC_ACK) {
		data = (const uint8_t *)&packet->original;
		length = sizeof(packet->original);
	}
	offset = (uint32_t)(psn - wqe->first_psn) * qp->attr.mtu;
	switch (ldma_sgl_scatter(&qp->device->iova, qp->pd, wqe->sge, wqe->sge_count, offset,
				 length, data)) {
	case LDMA_IOVA_OK:
		break;
	case LDMA_IOVA_DENIED:
		ldma_qp_fail_send(qp, LDMA_WC_LOC_PROT_ERR);
		return;
	case LDMA_IOVA_ABSENT:
		give_up_response(qp, wqe, offset, now_ns);
		return;
	}
	req->una = psn + 1;
	if (req->una == ldma_response_end(qp, wqe, psn) && req->una <= req->next)
		req->rd_outstanding--;
	if (req->una == wqe->end_psn)
		ldma_qp_complete_send(qp, LDMA_WC_SUCCESS);
	note_progress(qp, psn, now_ns);
}

void ldma_completer_receive(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t now_ns)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	struct ldma_requester *req = &qp->req;
	uint32_t ahead = (packet->psn - (uint32_t)req->una) & LDMA_PSN_MASK;
	const struct ldma_send_wqe *head;

	if (ahead >= req->sent_end - req->una) { /* a ghost: no open request has this PSN */
		LDMA_COUNT(qp, dropped_response);
		return;
	}
	if (info->operation == LDMA_OP_ACK)
		take_acknowledge(qp, packet, req->una + ahead, now_ns);
	else
		take_response(qp, packet, info, req->una + ahead, now_ns);
	if (qp->state == LDMA_QP_ERR || req->head == req->tail)
		return;
	head = ldma_qp_wqe(qp, req->head);
	if (head->status != LDMA_WC_SUCCESS) /* it failed earlier, and those before it are done */
		ldma_qp_fail_send(qp, (enum ldma_wc_status)head->status);
}
