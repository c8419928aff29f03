/* SPDX-License-Identifier: BSD-2-Clause */
/* States of a queue pair: the transitions, and the attributes that each takes (IBA 10.3.1, 11.2.5.2). */
#include <errno.h>
#include <string.h>

#include "device/device.h"

/* Masks of enum ldma_attr: what a transition needs, and what it also takes if asked to. */
struct needs {
	uint32_t required, optional;
};

#define ACCESS LDMA_ATTR_ACCESS
#define PKEY LDMA_ATTR_PKEY
#define QKEY LDMA_ATTR_QKEY
#define TO_PEER (LDMA_ATTR_PATH | LDMA_ATTR_MTU | LDMA_ATTR_DEST_QP | LDMA_ATTR_RQ_PSN)
#define RNR_TIMER LDMA_ATTR_MIN_RNR_TIMER
#define RETRIES (LDMA_ATTR_TIMEOUT | LDMA_ATTR_RETRY_COUNT | LDMA_ATTR_RNR_RETRY)
#define RD_ATOMIC LDMA_ATTR_MAX_RD_ATOMIC
#define DEST_RD_ATOMIC LDMA_ATTR_MAX_DEST_RD_ATOMIC
#define SQ_PSN LDMA_ATTR_SQ_PSN

static const struct transition {
	uint8_t from, to;
	struct needs rc, uc, datagram;
} transitions[] = {
	{LDMA_QP_RESET, LDMA_QP_INIT, {ACCESS | PKEY, 0}, {ACCESS | PKEY, 0}, {PKEY | QKEY, 0}},
	{LDMA_QP_INIT, LDMA_QP_INIT, {0, ACCESS | PKEY}, {0, ACCESS | PKEY}, {0, PKEY | QKEY}},
	{LDMA_QP_INIT,
	 LDMA_QP_RTR,
	 {TO_PEER | DEST_RD_ATOMIC | RNR_TIMER, ACCESS | PKEY},
	 {TO_PEER, ACCESS | PKEY},
	 {LDMA_ATTR_MTU, PKEY | QKEY}},
	{LDMA_QP_RTR,
	 LDMA_QP_RTS,
	 {SQ_PSN | RETRIES | RD_ATOMIC, ACCESS | RNR_TIMER},
	 {SQ_PSN, ACCESS},
	 {SQ_PSN, QKEY}},
	{LDMA_QP_RTS, LDMA_QP_RTS, {0, ACCESS | RNR_TIMER}, {0, ACCESS}, {0, QKEY}},
	{LDMA_QP_RTS, LDMA_QP_SQD, {0, 0}, {0, 0}, {0, 0}},
	{LDMA_QP_SQD,
	 LDMA_QP_SQD,
	 {0, LDMA_ATTR_PATH | RETRIES | RD_ATOMIC | DEST_RD_ATOMIC | ACCESS | PKEY | RNR_TIMER},
	 {0, LDMA_ATTR_PATH | ACCESS | PKEY},
	 {0, PKEY | QKEY}},
	{LDMA_QP_SQD, LDMA_QP_RTS, {0, ACCESS | RNR_TIMER}, {0, ACCESS}, {0, QKEY}},
	/* An RC queue pair is never in SQE. */
	{LDMA_QP_SQE, LDMA_QP_RTS, {0, 0}, {0, ACCESS}, {0, QKEY}},
};

static const struct needs *find_needs(const struct ldma_qp *qp, enum ldma_qp_state state)
{
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->from != qp->state || t->to != state)
			continue;
		if (ldma_qp_is_datagram(qp))
			return &t->datagram;
		return qp->type == LDMA_QP_RC ? &t->rc : &t->uc;
	}
	return NULL;
}

static bool is_valid(const struct ldma_qp *qp, const struct ldma_qp_attr *attr, uint32_t taken)
{
	uint32_t rights = LDMA_ACCESS_LOCAL_WRITE | LDMA_ACCESS_REMOTE_WRITE |
			  LDMA_ACCESS_REMOTE_READ | LDMA_ACCESS_REMOTE_ATOMIC;

	if ((taken & ACCESS) && (attr->access & ~rights))
		return false;
	if ((taken & LDMA_ATTR_MTU) &&
	    (attr->mtu < 256 || attr->mtu > 4096 || attr->mtu & (attr->mtu - 1)))
		return false;
	if ((taken & LDMA_ATTR_PATH) && attr->path.ip_version != 4 && attr->path.ip_version != 6)
		return false;
	if (((taken & LDMA_ATTR_DEST_QP) && attr->dest_qp > LDMA_PSN_MASK) ||
	    ((taken & LDMA_ATTR_RQ_PSN) && attr->rq_psn > LDMA_PSN_MASK) ||
	    ((taken & SQ_PSN) && attr->sq_psn > LDMA_PSN_MASK))
		return false;
	if (((taken & LDMA_ATTR_TIMEOUT) && attr->timeout > 31) ||
	    ((taken & LDMA_ATTR_RETRY_COUNT) && attr->retry_count > 7) ||
	    ((taken & LDMA_ATTR_RNR_RETRY) && attr->rnr_retry > 7) ||
	    ((taken & RNR_TIMER) && attr->min_rnr_timer > 31))
		return false;
	/* READs that were posted must be able to go, at least one at a time. */
	if ((taken & RD_ATOMIC) && (attr->max_rd_atomic > LDMA_MAX_RD_ATOMIC ||
				    (!attr->max_rd_atomic && qp->req.head != qp->req.tail)))
		return false;
	return !(taken & DEST_RD_ATOMIC) || attr->max_dest_rd_atomic <= LDMA_MAX_RD_ATOMIC;
}

static void start_requests(struct ldma_qp *qp, uint32_t psn)
{
	struct ldma_requester *req = &qp->req;

	req->una = req->next = req->sent_end = req->asked = req->post = psn;
	ldma_congestion_init(&req->congestion, qp->device->config.window_packets);
}

static void forget_resources(struct ldma_qp *qp)
{
	memset(qp->resp.resources, 0, sizeof(qp->resp.resources));
	qp->resp.newest = 0;
}

static void take(struct ldma_qp *qp, const struct ldma_qp_attr *attr, uint32_t taken)
{
#define TAKE(bit, name)                                                                            \
	do {                                                                                       \
		if (taken & LDMA_ATTR_##bit)                                                       \
			qp->attr.name = attr->name;                                                \
	} while (0)
	TAKE(ACCESS, access);
	TAKE(PKEY, pkey);
	TAKE(QKEY, qkey);
	TAKE(PATH, path);
	TAKE(MTU, mtu);
	TAKE(TIMEOUT, timeout);
	TAKE(RETRY_COUNT, retry_count);
	TAKE(RNR_RETRY, rnr_retry);
	TAKE(RQ_PSN, rq_psn);
	TAKE(MAX_RD_ATOMIC, max_rd_atomic);
	TAKE(MIN_RNR_TIMER, min_rnr_timer);
	TAKE(SQ_PSN, sq_psn);
	TAKE(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(DEST_QP, dest_qp);
#undef TAKE
	if (qp->type == LDMA_QP_GSI)
		qp->attr.qkey = LDMA_GSI_QKEY;
	if (taken & LDMA_ATTR_RETRY_COUNT)
		qp->req.retry_left = attr->retry_count;
	if (taken & LDMA_ATTR_RNR_RETRY)
		qp->req.rnr_left = attr->rnr_retry;
	if (taken & LDMA_ATTR_RQ_PSN)
		qp->resp.epsn = attr->rq_psn;
	if (taken & SQ_PSN)
		start_requests(qp, attr->sq_psn);
	if (taken & DEST_RD_ATOMIC)
		forget_resources(qp);
}

static int move(struct ldma_qp *qp, enum ldma_qp_state state, const struct ldma_qp_attr *attr)
{
	const struct needs *needs = find_needs(qp, state);
	uint32_t taken;

	if (!needs || (needs->required && !attr))
		return -EINVAL;
	taken = needs->required | (attr ? attr->optional : 0);
	if (taken & ~(needs->required | needs->optional) || !is_valid(qp, attr, taken))
		return -EINVAL;
	if ((taken & DEST_RD_ATOMIC) && qp->resp.pending)
		return -EBUSY;
	if (taken)
		take(qp, attr, taken);
	return 0;
}

/* Puts the queues back into the state in which the queue pair was made (IBA 10.3.1.1). */
static void reset(struct ldma_qp *qp)
{
	struct ldma_requester *req = &qp->req;

	req->head = req->cursor = req->tail = 0;
	req->rd_outstanding = 0;
	req->is_rnr_waiting = req->has_rewound = false;
	start_requests(qp, 0);
	memset(&qp->resp, 0, sizeof(qp->resp));
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->own_rq.head = qp->own_rq.tail = 0;
	qp->has_overrun = qp->cnp.is_pending = false;
	ldma_timer_set(&qp->device->timers, &qp->timer, LDMA_NEVER);
	ldma_qp_forget_waits(qp, LDMA_WAIT_REQUESTS | LDMA_WAIT_RESPONSES);
}

int ldma_qp_modify(struct ldma_qp *qp, enum ldma_qp_state state, const struct ldma_qp_attr *attr)
{
	int error = 0;

	if (state == LDMA_QP_RESET) {
		reset(qp);
	} else if (state == LDMA_QP_ERR && qp->state != LDMA_QP_RESET) {
		qp->resp.is_ack_pending = false;
		qp->resp.pending = 0;
		ldma_qp_forget_waits(qp, LDMA_WAIT_RESPONSES);
		ldma_qp_enter_error(qp);
	} else {
		error = move(qp, state, attr);
	}
	if (error)
		return error;
	if (state == LDMA_QP_SQD && qp->state != LDMA_QP_SQD)
		qp->req.is_drain_told = false;
	qp->state = (uint8_t)state;
	ldma_qp_tell_drained(qp);
	ldma_device_schedule(qp);
	return 0;
}
