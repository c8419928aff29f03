/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cnp.h"

#include "device/device.h"

#define BECN 0x40
#define ECN_BITS 3

static void reduce(struct ldma_qp *qp)
{
	if (ldma_congestion_halve(&qp->req.congestion, qp->req.una, qp->req.sent_end))
		LDMA_COUNT(qp, window_reduced);
}

void ldma_cnp_mark(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t now_ns)
{
	LDMA_COUNT(qp, np_ecn_marked_roce_packets);
	/* READ responses come as fast as this side's own window asks for them. */
	if (ldma_opcodes[packet->opcode].operation == LDMA_OP_READ_RESPONSE)
		reduce(qp);
	if (now_ns < qp->cnp.after_ns)
		return;
	qp->cnp.after_ns = now_ns + LDMA_CNP_INTERVAL_NS;
	qp->cnp.is_pending = true;
	ldma_device_schedule(qp); /* even if the packet's ACK can wait */
}

void ldma_cnp_receive(struct ldma_qp *qp)
{
	LDMA_COUNT(qp, rp_cnp_handled);
	reduce(qp);
}

size_t ldma_cnp_transmit(struct ldma_qp *qp, uint8_t *buf)
{
	struct ldma_packet packet;

	ldma_qp_start_packet(qp, &qp->attr.path, LDMA_OPCODE_CNP, 0, &packet);
	packet.tos &= (uint8_t)~ECN_BITS;
	packet.bth4 = BECN;
	qp->cnp.is_pending = false;
	LDMA_COUNT(qp, np_cnp_sent);
	return ldma_packet_encode(&packet, NULL, 0, buf, LDMA_PACKET_MAX);
}
