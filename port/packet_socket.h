/* A packet socket that hears IPv4 RoCE with its IP header, so that the ICRC, which covers the ID, is verified in full.
 *
 * It hears what comes in at the interface of the address, and what this host sends itself through loopback. XDP and tc
 * come before it, netfilter does not. It needs CAP_NET_RAW, and Linux 6.10: from then on a train that the kernel merged
 * has IDs that count up or are all the same (and its size of segments is told for UDP since 6.2). */
#ifndef LDMA_PACKET_SOCKET_H
#define LDMA_PACKET_SOCKET_H

#include "address.h"

/* What has to be free before the buffer that ldma_packet_socket_receive gets. */
#define LDMA_PACKET_SOCKET_HEADROOM 24

/* What one call received, from its IP header on. */
struct ldma_frame {
	uint8_t *l3;
	uint32_t length;
	uint32_t segment; /* bytes after the UDP header in each packet of a train; 0: one packet */
};

/* The descriptor, or a negative errno: -EPERM without privilege, -EOPNOTSUPP for IPv6, for interfaces without Ethernet
 * headers and for older kernels. */
int ldma_packet_socket_open(const struct ldma_address *local, uint32_t interface);

/* From now on it hears. program: a BPF program that says what, for who shares the address; -1: all that is for it.
 * 0 or a negative errno. */
int ldma_packet_socket_start(int fd, const struct ldma_address *local, uint32_t interface,
			     int program);

/* Receives the packet from its IP header on into buf of 65,536 bytes. 1; 0: nothing there; or a negative errno. */
int ldma_packet_socket_receive(int fd, uint8_t *buf, struct ldma_frame *ret);

#endif
