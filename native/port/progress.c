/* SPDX-License-Identifier: BSD-2-Clause */
/* Serves a port for one batch: trains in, packets from the device, trains out. */
#include <errno.h>
#include <time.h>

#include "port/port_internal.h"

#define LAZY_NS 20000  /* how long an ACK that can wait does so */
#define TX_PACKETS 256 /* sent in a row, before the port looks at arrivals */

uint64_t ldma_port_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Copies packets of the train that went out to the taps. */
static void tap_sent(struct ldma_port *port, uint32_t first, uint32_t count, uint64_t time_ns)
{
	for (uint32_t i = first; port->taps.count && i < first + count; i++) {
		struct ldma_tapped tapped = {.time_ns = time_ns,
					     .segment = (uint16_t)(i - first),
					     .direction = LDMA_RECORD_TX};

		tapped.l3 = ldma_train_packet(&port->train, i, &tapped.length);
		ldma_taps_packet(&port->taps, &tapped);
	}
}

static bool is_full(int error)
{
	return error == -EAGAIN || error == -ENOBUFS;
}

/* Sends the packets one by one, each with the ID 0, at an interface without segmentation. Returns false if the socket
 * is full. */
static bool send_singly(struct ldma_port *port)
{
	struct ldma_train *train = &port->train;

	for (; train->sent < train->count; train->sent++) {
		uint64_t time_ns = ldma_port_tap_time(port);
		int error;

		ldma_train_set_id(train, train->sent, 0);
		error = ldma_socket_send(&port->socket, &train->to, train->tos,
					 &train->iov[train->sent], 1, 0);
		if (is_full(error))
			return false;
		if (error)
			port->counters.send_errors++;
		else
			tap_sent(port, train->sent, 1, time_ns);
	}
	return true;
}

/* Sends the packets as one train. Returns as send_singly. */
static bool send_whole(struct ldma_port *port)
{
	struct ldma_train *train = &port->train;
	uint64_t time_ns = ldma_port_tap_time(port);
	int error = ldma_socket_send(&port->socket, &train->to, train->tos, train->iov,
				     train->count, train->segment);

	if (is_full(error))
		return false;
	if (error == -EIO && train->count > 1) {
		port->socket.has_gso = false;
		return send_singly(port);
	}
	if (error)
		port->counters.send_errors += train->count;
	else
		tap_sent(port, 0, train->count, time_ns);
	return true;
}

/* Sends the train. Returns false if the socket is full: the train stays. */
static bool send_train(struct ldma_port *port)
{
	struct ldma_train *train = &port->train;

	if (!train->count)
		return true;
	port->is_tx_blocked =
		!(train->count == 1 || port->socket.has_gso ? send_whole(port) : send_singly(port));
	if (port->is_tx_blocked)
		return false;
	port->counters.sent_trains++;
	return true;
}

/* Sends what waited for the socket; the packet that did not fit begins the next train. Returns false if the socket is
 * still full. */
static bool resume(struct ldma_port *port)
{
	struct ldma_train *train = &port->train;
	uint32_t length = port->next_bytes;

	if (port->is_tx_blocked && !send_train(port))
		return false;
	port->next_bytes = 0;
	if (length)
		ldma_train_restart(train, length, port->socket.local.scope);
	else
		ldma_train_clear(train);
	return true;
}

bool ldma_port_transmit(struct ldma_port *port, uint64_t now_ns)
{
	struct ldma_train *train = &port->train;
	uint32_t scope = port->socket.local.scope, sent = 0;

	if (!resume(port))
		return false;
	while (sent < TX_PACKETS) {
		uint32_t length;

		if (ldma_train_is_full(train)) {
			if (!send_train(port))
				return true;
			ldma_train_clear(train);
		}
		port->device->ip_id = (uint16_t)train->count;
		length = (uint32_t)ldma_device_transmit(port->device, ldma_train_slot(train),
							now_ns, NULL);
		if (!length)
			break;
		sent++;
		if (ldma_train_add(train, length, scope))
			continue;
		if (!send_train(port)) {
			port->next_bytes = length;
			return true;
		}
		ldma_train_restart(train, length, scope);
	}
	send_train(port);
	return sent > 0;
}

/* Sends the ACKs that can wait once they have waited for a while, in which more of them come. */
static bool flush_acks(struct ldma_port *port, uint64_t now_ns, bool is_last)
{
	if (!port->device->lazy) {
		port->lazy_ns = LDMA_NEVER;
		return false;
	}
	if (port->lazy_ns == LDMA_NEVER)
		port->lazy_ns = now_ns;
	if (!is_last && !port->device->is_ack_awaited && now_ns - port->lazy_ns < LAZY_NS)
		return false;
	port->lazy_ns = LDMA_NEVER;
	return ldma_device_flush_acks(port->device);
}

bool ldma_port_progress(struct ldma_port *port, const struct ldma_cq *cq, uint32_t trains,
			uint64_t now_ns, bool is_last)
{
	uint32_t received = 0;
	bool has_sent;

	while (received < trains && !(cq && received && !ldma_cq_is_empty(cq)) &&
	       ldma_port_receive(port, now_ns))
		received++;
	has_sent = ldma_port_transmit(port, now_ns);
	if (!received && !has_sent && flush_acks(port, now_ns, is_last))
		has_sent = ldma_port_transmit(port, now_ns);
	return received || has_sent;
}
