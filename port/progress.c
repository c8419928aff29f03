/* One batch: trains in, packets to the device and from it, trains out. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "bytes.h"
#include "port_internal.h"

#define RX_TRAINS 8    /* in a row, before answers go out */
#define TX_PACKETS 256 /* in a row, before arrivals are looked at */

uint64_t ldma_port_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The headers that the system took off, without lengths and ID. Returns their length. */
static uint32_t build_headers(const struct ldma_port *port, const struct ldma_arrival *arrival,
			      uint8_t *p)
{
	uint32_t l3 = 20;

	memset(p, 0, 48);
	if (port->socket.local.ip_version == 4) {
		p[0] = 0x45;
		p[1] = arrival->tos;
		p[6] = 0x40;
		p[8] = 64;
		p[9] = 17;
		memcpy(p + 12, arrival->from.bytes, 4);
		memcpy(p + 16, port->socket.local.bytes, 4);
	} else {
		l3 = 40;
		p[0] = (uint8_t)(0x60 | arrival->tos >> 4);
		p[1] = (uint8_t)(arrival->tos << 4);
		p[6] = 17;
		p[7] = 64;
		memcpy(p + 8, arrival->from.bytes, 16);
		memcpy(p + 24, port->socket.local.bytes, 16);
	}
	put16(p + l3, arrival->port);
	put16(p + l3 + 2, LDMA_ROCE2_PORT);
	return l3 + 8;
}

static void receive_packet(struct ldma_port *port, const uint8_t *l3, uint32_t length,
			   uint64_t now_ns)
{
	bool is_v4 = port->socket.local.ip_version == 4;
	struct ldma_packet packet;

	if (!ldma_packet_decode(is_v4 ? LDMA_LINK_IPV4 : LDMA_LINK_IPV6, l3, length, length,
				&packet)) {
		port->counters.foreign++;
		return;
	}
	if (is_v4 && packet.icrc_state == LDMA_ICRC_BAD && !packet.error &&
	    ldma_icrc_fits_some_id(&port->icrc, l3, length - LDMA_ICRC_BYTES, packet.icrc))
		packet.icrc_state = LDMA_ICRC_OK;
	ldma_device_receive(port->device, &packet, now_ns);
}

/* Each packet gets its headers back where the end of the one before it was, which nobody needs any more. */
static void receive_train(struct ldma_port *port, const struct ldma_arrival *arrival,
			  uint64_t now_ns)
{
	uint8_t template[48];
	uint32_t bytes = build_headers(port, arrival, template), i = 0;
	bool is_v4 = port->socket.local.ip_version == 4;

	for (uint32_t at = 0; at < arrival->length; at += arrival->segment, i++) {
		uint32_t left = arrival->length - at;
		uint32_t length = left < arrival->segment ? left : arrival->segment;
		uint8_t *l3 = arrival->data + at - bytes;

		memcpy(l3, template, bytes);
		if (is_v4) {
			put16(l3 + 2, (uint16_t)(length + 28));
			put16(l3 + 4, (uint16_t)i); /* as our own trains have them */
		} else {
			put16(l3 + 4, (uint16_t)(length + 8));
		}
		put16(l3 + bytes - 4, (uint16_t)(length + 8));
		receive_packet(port, l3, bytes + length, now_ns);
	}
	port->counters.received_trains++;
}

/* An interface without segmentation takes the packets one by one, each with the ID 0. */
static int send_singly(struct ldma_port *port)
{
	struct ldma_train *train = &port->train;
	int error = 0;

	for (uint32_t i = 0; i < train->count && error != -EAGAIN; i++) {
		ldma_train_set_id(train, i, 0);
		error = ldma_socket_send(&port->socket, &train->to, train->tos, &train->iov[i], 1,
					 0);
		if (error && error != -EAGAIN)
			port->counters.send_errors++;
	}
	return error;
}

/* False if the socket is full: the train stays. */
static bool send_train(struct ldma_port *port)
{
	struct ldma_train *train = &port->train;
	int error = 0;

	if (!train->count)
		return true;
	if (train->count == 1 || port->socket.has_gso) {
		error = ldma_socket_send(&port->socket, &train->to, train->tos, train->iov,
					 train->count, train->segment);
		if (error == -EIO && train->count > 1)
			port->socket.has_gso = false;
	}
	if (!port->socket.has_gso && train->count > 1)
		error = send_singly(port);
	port->is_tx_blocked = error == -EAGAIN || error == -ENOBUFS;
	if (port->is_tx_blocked)
		return false;
	if (error)
		port->counters.send_errors += train->count;
	port->counters.sent_trains++;
	return true;
}

bool ldma_port_transmit(struct ldma_port *port, uint64_t now_ns)
{
	struct ldma_train *train = &port->train;
	uint32_t scope = port->socket.local.scope, sent = 0;

	if (port->is_tx_blocked && !send_train(port))
		return false;
	train->count = train->bytes = 0;
	train->is_closed = false;
	while (sent < TX_PACKETS) {
		uint32_t length;

		port->device->ip_id = (uint16_t)train->count;
		length = (uint32_t)ldma_device_transmit(port->device, ldma_train_slot(train),
							now_ns, NULL);
		if (!length)
			break;
		sent++;
		if (!ldma_train_add(train, length, scope)) {
			if (!send_train(port)) {
				port->counters.send_errors++; /* this one; the train waits */
				return true;
			}
			ldma_train_restart(train, length, scope);
		}
		if (ldma_train_is_full(train)) {
			if (!send_train(port))
				return true;
			train->count = train->bytes = 0;
			train->is_closed = false;
		}
	}
	send_train(port);
	return sent > 0;
}

bool ldma_port_progress(struct ldma_port *port)
{
	uint64_t now_ns = ldma_port_now();
	struct ldma_arrival arrival;
	uint32_t received = 0;
	bool has_sent;

	while (received < RX_TRAINS &&
	       ldma_socket_receive(&port->socket, port->rx + HEADROOM, &arrival) > 0) {
		receive_train(port, &arrival, now_ns);
		received++;
	}
	has_sent = ldma_port_transmit(port, now_ns);
	if (!received && !has_sent && ldma_device_flush_acks(port->device))
		has_sent = ldma_port_transmit(port, now_ns);
	return received || has_sent;
}
