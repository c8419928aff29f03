/* SPDX-License-Identifier: BSD-2-Clause */
/* Declares what the files of the port share: its state, and the steps of serving it. */
#ifndef LDMA_PORT_INTERNAL_H
#define LDMA_PORT_INTERNAL_H

#include <pthread.h>

#include "port/port.h"
#include "port/spin.h"
#include "port/tap_host.h"
#include "port/train.h"
#include "wire/icrc_id.h"

#define HEADROOM 64 /* for the headers that the system took off the first packet of a train */

#define ASIDE_NS                                                                                   \
	1000000 /* for so long at a time the port's thread leaves the port to users that serve it */

struct ldma_port {
	struct ldma_device *device;
	struct ldma_socket socket;
	int packet_fd;    /* receives in the socket's place; -1: the socket receives */
	int packet_error; /* why there is no packet_fd, or 0 */
	bool is_shared;   /* the address is shared, and slot is this process's place */
	uint8_t slot;
	int stray_fd; /* where to send packets of other processes, or -1 */
	struct ldma_port_counters counters;
	struct ldma_icrc_cache icrc;
	struct ldma_taps taps;
	uint64_t spin_ns;
	struct ldma_spin user_spin; /* of the threads that wait */

	pthread_mutex_t owner;
	/* Held while waiting for ownership: a thread that has just given it up queues behind. */
	pthread_mutex_t next;
	uint32_t servers;    /* users that serve the port now */
	uint64_t served_ns;  /* when the last of them served it */
	uint64_t busy_ns;    /* atomic: time in which they and the thread had work */
	uint64_t timer_ns;   /* what timer_fd is set to */
	uint64_t lazy_ns;    /* since when an ACK waits */
	bool is_tx_blocked;  /* the train waits for the socket */
	uint32_t next_bytes; /* of a packet in the train's slot that did not fit, or 0 */
	bool is_stopping, has_listener;

	struct ldma_cq_channel channel;
	int event_fd, wake_fd, timer_fd;
	pthread_t thread;
	struct ldma_tap_host tap_host;

	struct ldma_train train;
	uint8_t rx[HEADROOM + 65536];
};

uint64_t ldma_port_now(void);

/* Returns the time of what is received or sent now, more exact than the batch's time; 0 if there are no taps. */
static inline uint64_t ldma_port_tap_time(const struct ldma_port *port)
{
	return port->taps.count ? ldma_port_now() : 0;
}

/* Receives and sends a batch. Returns whether there was anything to do. The caller owns the device. cq: the queue whose
 * completion the caller wants at once, or NULL. trains: how many to receive in a row, before answers go out. is_last:
 * no thread will serve the port again soon. */
bool ldma_port_progress(struct ldma_port *port, const struct ldma_cq *cq, uint32_t trains,
			uint64_t now_ns, bool is_last);

/* Receives a packet or a train. Returns whether there was one. */
bool ldma_port_receive(struct ldma_port *port, uint64_t now_ns);

/* Sends what is due. Returns whether there was anything. */
bool ldma_port_transmit(struct ldma_port *port, uint64_t now_ns);

/* Tells readers of taps about packets and waiters about completions; sets the timer of the sleeping thread. */
void ldma_port_publish(struct ldma_port *port, uint64_t now_ns);

/* The body of the port's thread. */
void *ldma_port_run(void *port);

#endif
