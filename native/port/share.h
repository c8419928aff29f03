/* SPDX-License-Identifier: BSD-2-Clause */
/* The interface by which a port shares its address with other processes; bpf/share_session.h implements it. */
#ifndef LDMA_SHARE_H
#define LDMA_SHARE_H

/* join takes a slot, 0 to 255, for the socket, which is bound with SO_REUSEPORT. From then on the socket receives
 * packets for queue pairs with the slot in the top 8 bits of their numbers, and messages to QP 1 that are for this
 * process. It returns the slot or a negative errno. *ret_filter becomes a program by which a packet socket receives the
 * same; the port closes it. */
struct ldma_share {
	void *session;
	int (*join)(void *session, int socket_fd, int *ret_filter);
};

#endif
