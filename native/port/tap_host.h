/* Where readers come to tap a device: its name among Unix sockets, and a thread that answers there. */
#ifndef LDMA_TAP_HOST_H
#define LDMA_TAP_HOST_H

#include <pthread.h>

#include "tap.h"

struct ldma_port;

/* A reader that is connected; fd -1: none. */
struct ldma_tap_client {
	int fd;
	struct ldma_tap *tap; /* NULL: its request has not come yet */
};

struct ldma_tap_host {
	struct ldma_port *port;
	int listen_fd; /* negative: somebody else has the name; only readers that waited are served */
	int stop_fd;
	pthread_t thread;
	struct ldma_tap_client clients[LDMA_TAPS];
};

/* Taps the port for readers that wait for it already, before this returns, and for those who come later. The port has
 * its lock and its device, and nobody has used it yet. 0, or a negative errno and nothing left open. */
int ldma_tap_host_start(struct ldma_tap_host *host, struct ldma_port *port);

/* Ends all taps; the readers find everything up to now in their rings. */
void ldma_tap_host_stop(struct ldma_tap_host *host);

#endif
