/* Congestion notifications (IBA A17.9.3): who gets a packet that the network marked tells its sender, who sends less. */
#ifndef LDMA_CNP_H
#define LDMA_CNP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LDMA_CNP_INTERVAL_NS 50000 /* between two of one queue pair, at least */

struct ldma_qp;
struct ldma_packet;

struct ldma_cnp {
	uint64_t after_ns; /* no other before */
	bool is_pending;
};

/* A connected queue pair's packet came with the mark (CE of RFC 3168). */
void ldma_cnp_mark(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t now_ns);

/* A notification came for a connected queue pair. */
void ldma_cnp_receive(struct ldma_qp *qp);

/* Writes the notification that is pending to buf. */
size_t ldma_cnp_transmit(struct ldma_qp *qp, uint8_t *buf);

#endif
