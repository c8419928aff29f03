/* SPDX-License-Identifier: BSD-2-Clause */
/* The service of a device: one thread that handles the completions of all endpoints, in batches. It posts what follows
 * from a batch of calls and completions under one lock of the device, so that packets share trains.
 *
 * Calls that the program does not take are gathered whole, for other threads: ldma_service_next_call. */
#ifndef LDMA_SERVER_H
#define LDMA_SERVER_H

#include "port/port.h"
#include "rpc/endpoint.h"

struct ldma_service_config {
	struct ldma_port *port;
	struct ldma_cq *cq;
	uint32_t completions; /* the most that the queue holds */
	uint64_t spin_ns;     /* the longest time that the thread looks before it sleeps */
	bool has_reserve;     /* control traffic has a lane of its own before the slow path */
};

struct ldma_service_stats {
	uint64_t wakes, batches, completions, locks;
	uint64_t busy_ns; /* the thread's time with them; that with the device is in port.h */
};

/* Makes a service and starts its thread. Returns 0, -ENOMEM or an error of pthread_create. */
int ldma_service_create(const struct ldma_service_config *config, struct ldma_service **ret);

/* Ends the thread, and every wait for calls. All endpoints have to be over. */
void ldma_service_stop(struct ldma_service *service);

/* Frees a stopped service. Its endpoints and calls have to be gone. NULL is accepted. */
void ldma_service_destroy(struct ldma_service *service);

/* Sets the program that gets every call from now on; NULL: none. */
void ldma_service_set_program(struct ldma_service *service, struct ldma_program *program);

/* Returns the next call for the slow path; NULL after timeout_ns, or when the service has stopped. only_control: the
 * thread is kept for control traffic, which then does not wait until a call that is long at work in the store ends. */
struct ldma_call *ldma_service_next_call(struct ldma_service *service, uint64_t timeout_ns,
					 bool only_control);

/* Returns the next endpoint that is over: nothing of it is posted, no call of it is being worked on, and all its
 * buffers are back. Each comes once. Returns NULL as ldma_service_next_call does. */
struct ldma_endpoint *ldma_service_next_ended(struct ldma_service *service, uint64_t timeout_ns);

bool ldma_service_is_stopped(struct ldma_service *service);
struct ldma_service_stats ldma_service_stats(struct ldma_service *service);

#endif
