/* SPDX-License-Identifier: BSD-2-Clause */
/* Congestion notification packets (CNPs, IBA A17.9.3). A queue pair that receives a packet which the network marked
 * sends a CNP to its peer; a queue pair that receives a CNP halves its congestion window. The device calls these
 * functions on its own thread; all state is in the queue pair. */
#ifndef LDMA_CNP_H
#define LDMA_CNP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LDMA_CNP_INTERVAL_NS 50000 /* the least time between two CNPs of one queue pair */

struct ldma_qp;
struct ldma_packet;

struct ldma_cnp {
	uint64_t after_ns; /* the next CNP is not sent before this time */
	bool is_pending;
};

/* Takes note of a packet that a connected queue pair received with the mark (CE of RFC 3168). */
void ldma_cnp_mark(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t now_ns);

/* Takes a CNP that a connected queue pair received. */
void ldma_cnp_receive(struct ldma_qp *qp);

/* Writes the pending CNP to buf (LDMA_PACKET_MAX bytes) and returns its length. */
size_t ldma_cnp_transmit(struct ldma_qp *qp, uint8_t *buf);

#endif
