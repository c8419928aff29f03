/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/wake.h"
#include "port/packet_socket.h"
#include "port/port_internal.h"
#include "port/stray.h"

void ldma_port_publish(struct ldma_port *port, uint64_t now_ns)
{
	uint64_t timer_ns = ldma_device_next_timer(port->device);

	if (port->taps.count)
		ldma_taps_publish(&port->taps);
	/* If no user serves the port from now on, the thread sends what is left. */
	if (port->device->lazy) {
		uint64_t lazy_ns = now_ns + ASIDE_NS;

		if (lazy_ns < timer_ns)
			timer_ns = lazy_ns;
	}
	if (port->channel.raised) {
		for (struct ldma_cq *cq; (cq = ldma_cq_channel_raised(&port->channel));)
			if (__atomic_load_n(&cq->sleepers, __ATOMIC_SEQ_CST))
				ldma_futex_wake_all(&cq->events);
		if (port->has_listener)
			ldma_signal(port->event_fd);
	}
	/* The timer is set only for an earlier deadline: a later one is noticed when the old one comes. */
	if (timer_ns < port->timer_ns) {
		struct itimerspec timer = {.it_value = ldma_timespec(timer_ns)};

		port->timer_ns = timer_ns;
		timerfd_settime(port->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
	}
}

struct ldma_device *ldma_port_lock(struct ldma_port *port)
{
	pthread_mutex_lock(&port->next);
	pthread_mutex_lock(&port->owner);
	pthread_mutex_unlock(&port->next);
	return port->device;
}

void ldma_port_unlock(struct ldma_port *port)
{
	uint64_t now_ns = ldma_port_now();
	bool is_rest;

	ldma_port_transmit(port, now_ns);
	ldma_port_publish(port, now_ns);
	is_rest = port->device->ready || port->is_tx_blocked;
	pthread_mutex_unlock(&port->owner);
	if (is_rest) /* more is left than one batch, or than the socket takes */
		ldma_signal(port->wake_fd);
}

struct ldma_cq *ldma_port_create_cq(struct ldma_port *port, uint32_t capacity)
{
	return ldma_cq_create(capacity, &port->channel);
}

int ldma_port_destroy_cq(struct ldma_port *port, struct ldma_cq *cq)
{
	int error;

	ldma_device_forget_events(ldma_port_lock(port), cq);
	error = ldma_cq_destroy(cq);
	ldma_port_unlock(port);
	return error;
}

int ldma_port_event_fd(struct ldma_port *port)
{
	ldma_port_lock(port);
	port->has_listener = true;
	ldma_port_unlock(port);
	return port->event_fd;
}

struct ldma_cq *ldma_port_next_event(struct ldma_port *port)
{
	struct ldma_cq *cq;

	ldma_unsignal(port->event_fd); /* first: what comes meanwhile is signalled again */
	ldma_port_lock(port);
	cq = ldma_cq_channel_next(&port->channel);
	ldma_port_unlock(port);
	return cq;
}

struct ldma_port_counters ldma_port_counters(struct ldma_port *port)
{
	struct ldma_port_counters counters;

	ldma_port_lock(port);
	counters = port->counters;
	ldma_port_unlock(port);
	counters.busy_ns = __atomic_load_n(&port->busy_ns, __ATOMIC_RELAXED);
	counters.overruns =
		ldma_socket_drops(port->packet_fd >= 0 ? port->packet_fd : port->socket.fd);
	return counters;
}

enum ldma_port_kind ldma_port_kind(const struct ldma_port *port, int *ret_error)
{
	*ret_error = port->packet_error;
	return port->packet_fd >= 0 ? LDMA_PORT_PACKET : LDMA_PORT_UDP;
}

uint32_t ldma_port_slot(const struct ldma_port *port)
{
	return port->slot;
}

struct ldma_path ldma_port_path(const struct ldma_port *port, const uint8_t peer[16])
{
	struct ldma_path path = {
		.ip_version = port->socket.local.ip_version, .ttl = 64, .sport = LDMA_ROCE2_PORT};

	memcpy(path.src, port->socket.local.bytes, 16);
	memcpy(path.dst, peer, 16);
	return path;
}

static void set_up_lock(struct ldma_port *port)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&port->owner, &attributes);
	pthread_mutex_init(&port->next, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

/* Takes a slot among the processes that share the address. */
static int join(struct ldma_port *port, const struct ldma_share *share, int *ret_filter)
{
	int slot = share->join(share->session, port->socket.fd, ret_filter);

	if (slot < 0)
		return slot;
	port->is_shared = true;
	port->slot = (uint8_t)slot;
	port->stray_fd = ldma_stray_open(port->socket.local.ip_version);
	return 0;
}

static int open_sockets(struct ldma_port *port, const struct ldma_port_config *config)
{
	int filter = -1, error;

	if (config->kind != LDMA_PORT_UDP) {
		port->packet_fd = ldma_packet_socket_open(&config->address, config->interface);
		if (port->packet_fd < 0 && config->kind == LDMA_PORT_PACKET)
			return port->packet_fd;
		if (port->packet_fd < 0)
			port->packet_error = -port->packet_fd;
	}
	error = ldma_socket_open(&port->socket, &config->address, config->share,
				 port->packet_fd >= 0);
	if (!error && config->share)
		error = join(port, config->share, &filter);
	if (!error && port->packet_fd >= 0)
		error = ldma_packet_socket_start(port->packet_fd, &config->address,
						 config->interface, filter);
	if (filter >= 0)
		close(filter);
	return error;
}

/* Sets the numbers of the slot's queue pairs, from a random one on: the slot may have belonged to a process that
 * died. */
static void set_numbers(const struct ldma_port *port, struct ldma_device_config *config)
{
	uint16_t start = 0;

	if (!port->is_shared)
		return;
	if (getrandom(&start, sizeof(start), GRND_NONBLOCK) < 0)
		start = (uint16_t)ldma_port_now();
	config->first_qp = (uint32_t)port->slot << 16;
	config->last_qp = config->first_qp | 0xffff;
	config->next_qp = config->first_qp | start;
}

static int open_parts(struct ldma_port *port, const struct ldma_port_config *config)
{
	struct ldma_device_config device = config->device;
	int error = open_sockets(port, config);

	if (error)
		return error;
	port->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	port->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	port->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (port->event_fd < 0 || port->wake_fd < 0 || port->timer_fd < 0)
		return -errno;
	set_numbers(port, &device);
	port->device = ldma_device_create(&device);
	return port->device ? 0 : -ENOMEM;
}

static void free_parts(struct ldma_port *port)
{
	int fds[] = {port->packet_fd, port->socket.fd, port->stray_fd,
		     port->event_fd,  port->wake_fd,   port->timer_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	ldma_device_destroy(port->device);
	pthread_mutex_destroy(&port->owner);
	pthread_mutex_destroy(&port->next);
	free(port);
}

int ldma_port_open(const struct ldma_port_config *config, struct ldma_port **ret)
{
	struct ldma_port *port = calloc(1, sizeof(*port));
	int error;

	if (!port)
		return -ENOMEM;
	set_up_lock(port);
	port->spin_ns = config->spin_us * UINT64_C(1000);
	port->timer_ns = port->lazy_ns = LDMA_NEVER;
	port->packet_fd = port->socket.fd = port->stray_fd = -1;
	port->event_fd = port->wake_fd = port->timer_fd = -1;
	error = open_parts(port, config);
	if (!error)
		error = ldma_tap_host_start(&port->tap_host, port);
	if (error) {
		free_parts(port);
		return error;
	}
	error = -pthread_create(&port->thread, NULL, ldma_port_run, port);
	if (error) {
		ldma_tap_host_stop(&port->tap_host);
		free_parts(port);
		return error;
	}
	*ret = port;
	return 0;
}

void ldma_port_close(struct ldma_port *port)
{
	__atomic_store_n(&port->is_stopping, true, __ATOMIC_RELAXED);
	ldma_signal(port->wake_fd);
	pthread_join(port->thread, NULL);
	ldma_tap_host_stop(&port->tap_host);
	free_parts(port);
}
