/* What the files of the port share. */
#ifndef LDMA_PORT_INTERNAL_H
#define LDMA_PORT_INTERNAL_H

#include <pthread.h>

#include "icrc_id.h"
#include "port.h"
#include "spin.h"
#include "tap_host.h"
#include "train.h"

#define HEADROOM 64 /* for the headers that the system took off the first packet of a train */

#define ASIDE_NS                                                                                   \
	1000000 /* for so long at a time the port's thread leaves it to those who serve it */

struct ldma_port {
	struct ldma_device *device;
	struct ldma_socket socket;
	int packet_fd;    /* receives in the socket's place; -1: the socket does */
	int packet_error; /* why there is none, or 0 */
	bool is_shared;   /* the address, and this is our place: */
	uint8_t slot;
	int stray_fd; /* where to send packets of other processes, or -1 */
	struct ldma_port_counters counters;
	struct ldma_icrc_cache icrc;
	struct ldma_taps taps;
	uint64_t spin_ns;
	struct ldma_spin user_spin; /* of those who wait */

	pthread_mutex_t owner;
	/* Held while waiting for ownership: who has just given it up queues behind. */
	pthread_mutex_t next;
	uint32_t servers;    /* users who serve the port now */
	uint64_t served_ns;  /* when the last of them did */
	uint64_t busy_ns;    /* atomic: that they, and the thread, had something to do */
	uint64_t timer_ns;   /* what timer_fd is set to */
	uint64_t lazy_ns;    /* since when an ACK waits */
	bool is_tx_blocked;  /* the train waits for the socket, */
	uint32_t next_bytes; /* and behind it, in its slot, a packet that did not fit, or 0 */
	bool is_stopping, has_listener;

	struct ldma_cq_channel channel;
	int event_fd, wake_fd, timer_fd;
	pthread_t thread;
	struct ldma_tap_host tap_host;

	struct ldma_train train;
	uint8_t rx[HEADROOM + 65536];
};

uint64_t ldma_port_now(void);

/* The time of what is received or sent now, closer than the batch's; asked only if somebody wants to know. */
static inline uint64_t ldma_port_tap_time(const struct ldma_port *port)
{
	return port->taps.count ? ldma_port_now() : 0;
}

/* Receives and sends a batch; whether there was anything to do. The caller owns the device. cq: who waits for a
 * completion here (or NULL) wants it at once. trains: received in a row, before answers go out. is_last: nobody will
 * come again soon. */
bool ldma_port_progress(struct ldma_port *port, const struct ldma_cq *cq, uint32_t trains,
			uint64_t now_ns, bool is_last);

/* Receives a packet or a train; whether there was one. */
bool ldma_port_receive(struct ldma_port *port, uint64_t now_ns);

/* Sends what is due. */
bool ldma_port_transmit(struct ldma_port *port, uint64_t now_ns);

/* Tells readers of taps about packets and waiters about completions; sets the timer of the sleeping thread. */
void ldma_port_publish(struct ldma_port *port, uint64_t now_ns);

/* The port's thread. */
void *ldma_port_run(void *port);

#endif
