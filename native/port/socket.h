/* SPDX-License-Identifier: BSD-2-Clause */
/* A UDP socket that sends and receives trains: many packets of one size in one call (GSO and GRO). The port owns it and
 * uses it on the thread that owns the device. */
#ifndef LDMA_SOCKET_H
#define LDMA_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "port/address.h"

#define LDMA_SOCKET_BUFFER_BYTES (8 << 20) /* for a few windows; the system may allow less */
#define LDMA_TRAIN_SEGMENTS 64             /* Linux's UDP_MAX_SEGMENTS before 6.9 */
#define LDMA_TRAIN_BYTES 65000             /* below 65,535 with any headers */

struct ldma_socket {
	int fd;
	struct ldma_address local;
	bool has_gso; /* until the interface refuses */
	uint8_t tos;  /* as set */
};

/* The train that one call received: length bytes at data, in segments of one size (the last may be shorter). */
struct ldma_arrival {
	uint8_t *data;
	uint32_t length, segment;
	struct ldma_address from;
	uint16_t port;
	uint8_t tos; /* known once packets that can be marked were sent, else 0 */
};

/* Opens a socket for RoCE at the address. A deaf socket holds the address and sends, but does not receive: a packet
 * socket does. Returns 0, or a negative errno with nothing open. */
int ldma_socket_open(struct ldma_socket *socket, const struct ldma_address *local, bool shares,
		     bool is_deaf);

/* Gives the socket a large buffer, by the forced option (SO_RCVBUFFORCE) beyond the system's limit if that is allowed,
 * else by the plain option. */
void ldma_socket_set_buffer(int fd, int forced, int option);

/* Returns how many arrivals the socket had no room for. */
uint32_t ldma_socket_drops(int fd);

/* Receives into buf of 65,536 bytes. Returns 1; 0: nothing is there; or a negative errno. */
int ldma_socket_receive(struct ldma_socket *socket, uint8_t *buf, struct ldma_arrival *ret);

/* Sends count packets, all but the last of segment bytes, to one peer. Returns 0 or a negative errno: after -EAGAIN the
 * caller tries again later, after others never. Packet i of a train has the IPv4 ID i. -EIO means that the interface
 * cannot send trains at all. */
int ldma_socket_send(struct ldma_socket *socket, const struct ldma_address *to, uint8_t tos,
		     struct iovec *packets, uint32_t count, uint16_t segment);

#endif
