/* What the files of the port share. */
#ifndef LDMA_PORT_INTERNAL_H
#define LDMA_PORT_INTERNAL_H

#include <pthread.h>

#include "icrc_id.h"
#include "port.h"
#include "train.h"

#define HEADROOM 64 /* for the headers that the system took off the first packet of a train */

struct ldma_port {
	struct ldma_device *device;
	struct ldma_socket socket;
	struct ldma_port_counters counters;
	struct ldma_icrc_cache icrc;
	uint64_t spin_ns;

	pthread_mutex_t owner;
	/* Held while waiting for ownership: who has just given it up queues behind. */
	pthread_mutex_t next;
	uint64_t served_ns; /* when a user last served the port */
	uint64_t timer_ns;  /* what timer_fd is set to */
	bool is_tx_blocked; /* the train waits for the socket */
	bool is_stopping, has_listener;

	struct ldma_cq_channel channel;
	uint64_t seen_events; /* of the channel's */
	uint32_t event_sequence, sleepers;
	int event_fd, wake_fd, timer_fd;
	pthread_t thread;

	struct ldma_train train;
	uint8_t rx[HEADROOM + 65536];
};

uint64_t ldma_port_now(void);

/* Receives and sends a batch; whether there was anything to do. The caller owns the device. */
bool ldma_port_progress(struct ldma_port *port);

/* Sends what is due. */
bool ldma_port_transmit(struct ldma_port *port, uint64_t now_ns);

/* Tells waiters about completions; sets the timer of the sleeping thread. */
void ldma_port_publish(struct ldma_port *port);

void *ldma_port_run(void *port);

#endif
