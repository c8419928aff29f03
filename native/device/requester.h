/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester turns posted send requests into packets. When the completer or the timer says so, it sends them again
 * from the oldest unacknowledged one on (go-back-N). The device and the completer call it. */
#ifndef LDMA_REQUESTER_H
#define LDMA_REQUESTER_H

#include "device/device.h"

/* Writes the next request packet to buf (LDMA_PACKET_MAX bytes) and returns its length. Returns 0 if none may be sent
 * now: nothing is posted, the window or the responder's resources are used up, or it waits for a fence, for the end of
 * an RNR wait, for an absent page, or for earlier requests to complete before a failed one. */
size_t ldma_requester_transmit(struct ldma_qp *qp, uint8_t *buf, uint64_t now_ns);

/* Continues from the oldest unacknowledged PSN. */
void ldma_requester_rewind(struct ldma_qp *qp);

/* Asks for the absent pages of the request's bytes from offset on, and makes requests wait for them. */
void ldma_requester_wait_for_page(struct ldma_qp *qp, const struct ldma_send_wqe *wqe,
				  uint32_t offset, uint64_t now_ns);

/* Starts the timer anew if anything is unacknowledged, else stops it (IBA 9.7.6.1.3). */
void ldma_requester_restart_timer(struct ldma_qp *qp, uint64_t now_ns);

/* The queue pair's timer has run out: the end of an RNR wait, or of waiting for an ACK. */
void ldma_requester_expire(struct ldma_timer *timer);

static inline bool ldma_wqe_needs_response(const struct ldma_send_wqe *wqe)
{
	return wqe->opcode >= LDMA_WR_RDMA_READ && wqe->opcode <= LDMA_WR_ATOMIC_FETCH_AND_ADD;
}

/* Returns the PSN after the last response of the READ or atomic request that asks for psn. A long READ is several
 * requests. Where they are cut depends on its first PSN alone, so what is asked for again after a go-back lies within
 * one earlier request; the responder need not answer any other repetition (IBA 9.7.5.1.4). */
static inline uint64_t ldma_response_end(const struct ldma_qp *qp, const struct ldma_send_wqe *wqe,
					 uint64_t psn)
{
	uint64_t offset = (psn - wqe->first_psn) | (qp->device->config.read_packets - 1);
	uint64_t end = wqe->first_psn + offset + 1;

	return end < wqe->end_psn ? end : wqe->end_psn;
}

#endif
