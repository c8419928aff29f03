/* What a port needs of who lets several processes share an address (bpf/share_session.h). */
#ifndef LDMA_SHARE_H
#define LDMA_SHARE_H

/* join takes a slot, 0 to 255, for the socket, which is bound with SO_REUSEPORT: from then on it gets what is for queue
 * pairs with the slot in the top 8 bits of their numbers, and messages to QP 1 that are for this process. Returns the slot,
 * or a negative errno. ret_filter: a program that lets a packet socket hear the same; the port closes it. */
struct ldma_share {
	void *session;
	int (*join)(void *session, int socket_fd, int *ret_filter);
};

#endif
