/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder takes the peer's requests: each passes a chain of checks, is executed, and is answered. The device
 * calls ldma_responder_receive for each request packet and ldma_responder_transmit for the answers. The rest is shared
 * by the responder's own files. */
#ifndef LDMA_RESPONDER_H
#define LDMA_RESPONDER_H

#include "device/qp.h"

/* Syndromes of the AETH (IBA table 44 to 46). */
enum ldma_syndrome {
	LDMA_SYNDROME_ACK = 0x1f, /* with unlimited credits */
	LDMA_SYNDROME_RNR = 0x20,
	LDMA_SYNDROME_NAK_SEQUENCE = 0x60,
	LDMA_SYNDROME_NAK_INVALID = 0x61,
	LDMA_SYNDROME_NAK_ACCESS = 0x62,
	LDMA_SYNDROME_NAK_OPERATION = 0x63,
};

/* Takes one packet, which is a request to a queue pair in a state that may receive. */
void ldma_responder_receive(struct ldma_qp *qp, const struct ldma_packet *packet);

/* Writes the next response to buf (LDMA_PACKET_MAX bytes) and returns its length, or 0 if there is none. Responses to
 * READs and atomics go in the order of the requests, an ACK after the responses it covers; an absent page delays them
 * all. A queue pair in ERR still sends the NAK that says why. */
size_t ldma_responder_transmit(struct ldma_qp *qp, uint8_t *buf, uint64_t now_ns);

/* responder_reply.c: */

/* Queues an ACK or NAK of psn; it replaces one that waits. */
void ldma_responder_acknowledge(struct ldma_qp *qp, uint32_t psn, uint8_t syndrome);

/* Ends the connection with a NAK of psn, and with an event if no completion tells why. */
void ldma_responder_refuse(struct ldma_qp *qp, uint32_t psn, uint8_t syndrome);

/* Answers a request that was executed before (IBA 9.7.5.1.4). */
void ldma_responder_repeat(struct ldma_qp *qp, const struct ldma_packet *packet,
			   const struct ldma_opcode_info *info);

/* Returns whether ldma_responder_reserve would succeed. */
bool ldma_responder_has_room(const struct ldma_qp *qp);

/* Returns a resource for a READ or atomic with its first response pending, or NULL if the requester exceeds the number
 * that was agreed. */
struct ldma_resource *ldma_responder_reserve(struct ldma_qp *qp, const struct ldma_packet *packet,
					     uint8_t operation, uint32_t count);

#endif
