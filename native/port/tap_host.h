/* SPDX-License-Identifier: BSD-2-Clause */
/* The host of a device's taps: it listens at the device's name among Unix sockets, with a thread that lets readers in
 * and adds and removes their taps. The port owns it. */
#ifndef LDMA_TAP_HOST_H
#define LDMA_TAP_HOST_H

#include <pthread.h>

#include "port/tap.h"

struct ldma_port;

/* A connected reader; fd -1: none. */
struct ldma_tap_client {
	int fd;
	struct ldma_tap *tap; /* NULL: its request has not come yet */
};

struct ldma_tap_host {
	struct ldma_port *port;
	int listen_fd; /* negative: the name is taken, and only readers that waited are served */
	int stop_fd;
	pthread_t thread;
	struct ldma_tap_client clients[LDMA_TAPS];
};

/* Lets in readers that wait for the port already, before it returns, and starts the thread for those that come later.
 * The port has its lock and its device, and no thread has used it yet. Returns 0, or a negative errno with nothing left
 * open. */
int ldma_tap_host_start(struct ldma_tap_host *host, struct ldma_port *port);

/* Ends all taps and the thread; the readers find everything up to now in their rings. */
void ldma_tap_host_stop(struct ldma_tap_host *host);

#endif
