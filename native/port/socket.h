/* A UDP socket that sends and receives trains: many packets of one size in one call (GSO and GRO). */
#ifndef LDMA_SOCKET_H
#define LDMA_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "address.h"

#define LDMA_SOCKET_BUFFER_BYTES (8 << 20) /* a few windows; the system may allow less */
#define LDMA_TRAIN_SEGMENTS 64             /* Linux's UDP_MAX_SEGMENTS before 6.9 */
#define LDMA_TRAIN_BYTES 65000             /* below 65,535 with any headers */

struct ldma_socket {
	int fd;
	struct ldma_address local;
	bool has_gso; /* until the interface refuses */
	uint8_t tos;  /* as set */
};

/* What one call received: length bytes at data, in segments of one size (the last may be shorter). */
struct ldma_arrival {
	uint8_t *data;
	uint32_t length, segment;
	struct ldma_address from;
	uint16_t port;
	uint8_t tos; /* known once packets that can be marked were sent, else 0 */
};

/* Opens a socket for RoCE at the address. One that is deaf holds the address and sends, and lets somebody else receive.
 * 0 or a negative errno; nothing is open then. */
int ldma_socket_open(struct ldma_socket *socket, const struct ldma_address *local, bool shares,
		     bool is_deaf);

/* A large buffer, by the forced option (SO_RCVBUFFORCE) beyond the system's limit if allowed, else by the plain one. */
void ldma_socket_set_buffer(int fd, int forced, int option);

/* What came and could not be kept. */
uint32_t ldma_socket_drops(int fd);

/* Receives into buf of 65,536 bytes. 1; 0: nothing there; or a negative errno. */
int ldma_socket_receive(struct ldma_socket *socket, uint8_t *buf, struct ldma_arrival *ret);

/* Sends count packets, all but the last of segment bytes, to one peer. 0, or a negative errno: -EAGAIN for later, others
 * for never. Packet i of a train has the IPv4 ID i; -EIO means that the interface cannot have trains at all. */
int ldma_socket_send(struct ldma_socket *socket, const struct ldma_address *to, uint8_t tos,
		     struct iovec *packets, uint32_t count, uint16_t segment);

#endif
