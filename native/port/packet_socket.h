/* SPDX-License-Identifier: BSD-2-Clause */
/* A packet socket that receives IPv4 RoCE with its IP header, so that the port verifies all of the ICRC, which covers
 * the IPv4 ID. A port uses one in the place of its UDP socket's receiving side, on the thread that owns the device; the
 * caller closes the descriptor.
 *
 * The socket receives what comes in at the interface of the address, and what this host sends to itself through
 * loopback. Packets pass XDP and tc before it, but not netfilter. It needs CAP_NET_RAW and Linux 6.10: from then on a
 * train that the kernel merged has IDs that count up or are all the same (the size of its segments is told for UDP
 * since 6.2). */
#ifndef LDMA_PACKET_SOCKET_H
#define LDMA_PACKET_SOCKET_H

#include "port/address.h"

/* The bytes that have to be free before the buffer that ldma_packet_socket_receive gets. */
#define LDMA_PACKET_SOCKET_HEADROOM 24

/* The packet or train that one call received, from its IP header on. */
struct ldma_received {
	uint8_t *l3;
	uint32_t length;
	uint32_t segment; /* bytes after the UDP header in each packet of a train; 0: one packet */
};

/* Returns the descriptor, or a negative errno: -EPERM without privilege, -EOPNOTSUPP for IPv6, for interfaces without
 * Ethernet headers and for older kernels. */
int ldma_packet_socket_open(const struct ldma_address *local, uint32_t interface);

/* Starts the socket: from now on it receives. program is a BPF program that selects packets if the address is shared;
 * -1: the socket receives all packets for the address. Returns 0 or a negative errno. */
int ldma_packet_socket_start(int fd, const struct ldma_address *local, uint32_t interface,
			     int program);

/* Receives a packet from its IP header on into buf of 65,536 bytes. Returns 1; 0: nothing is there; or a negative
 * errno. */
int ldma_packet_socket_receive(int fd, uint8_t *buf, struct ldma_received *ret);

#endif
