/* SPDX-License-Identifier: BSD-2-Clause */
/* RoCE traffic for tests: many packets of one shape, sent fast or at a rate, and checked where they arrive.
 *
 * Packet i has PSN psn + i and a payload that is computed from i, so a receiver can tell which one it holds and
 * whether it is whole.
 */
#ifndef LDMA_GENERATOR_H
#define LDMA_GENERATOR_H

#include <stdint.h>

#define GENERATOR_LINK_MAX 22

/* tests/traffic.py declares the same fields. */
struct generator_flow {
	uint8_t src[16], dst[16];
	uint8_t version, ip_version, opcode;
	uint8_t by_udp; /* the socket adds IP and UDP: send from the BTH on */
	uint8_t repeat; /* send the first few packets again and again, to save building each */
	uint8_t link_bytes;
	uint8_t link[GENERATOR_LINK_MAX]; /* what precedes the IP header on a packet socket */
	uint16_t sport, ip_id;
	uint32_t dest_qp, src_qp, psn; /* psn: that of the first packet */
	uint32_t segments;             /* by UDP: packets in one send (UDP_SEGMENT); 0 and 1: one */
	uint32_t payload_bytes;        /* of each packet; a multiple of 4 */
	uint64_t first, count;         /* packets first to first + count - 1 of the flow */
	double rate;                   /* packets/s; 0: as fast as it goes */
};

/* Sends the flow through a blocking socket, a packet socket that is bound or a UDP socket. Returns the number of
 * packets that the socket took, or -errno. */
int64_t generator_send(int fd, const struct generator_flow *flow);

struct generator_result {
	uint64_t packets, bytes;
	uint64_t wrong;        /* payload is not what its PSN says */
	uint64_t out_of_order; /* PSN is not the one after the packet before */
	uint64_t digest;       /* over PSNs and payloads, in the order of arrival */
};

/* Receives a flow from a UDP socket until all of it came or nothing came for idle_ms. Returns 0 or -errno. */
int generator_receive(int fd, const struct generator_flow *flow, int idle_ms,
		      struct generator_result *ret);

#endif
