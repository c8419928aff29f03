/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns what a socket received into packets for the device. */
#include <string.h>

#include "base/bytes.h"
#include "port/packet_socket.h"
#include "port/port_internal.h"
#include "port/stray.h"
#include "wire/icrc.h"

#define UDP_BYTES 8
#define HEADERS_MAX (60 + UDP_BYTES) /* of IPv4 with options; IPv6 comes without extensions */

_Static_assert(HEADROOM >= 48 && HEADROOM >= LDMA_PACKET_SOCKET_HEADROOM, "headers fit before");

/* The headers of a train, which its packets get one after the other: each is written over the end of the packet before
 * it, which is no longer needed. */
struct headers {
	uint8_t bytes[HEADERS_MAX];
	uint32_t length;
	uint16_t id; /* of the first packet, for IPv4 */
	bool counts; /* the IDs count up; else all are the same */
};

/* The time of an arrival. */
struct moment {
	uint64_t now_ns; /* the batch's time, for the device */
	uint64_t tap_ns; /* its own time, if there are taps */
};

static bool is_v4(const struct ldma_port *port)
{
	return port->socket.local.ip_version == 4;
}

static bool decode(struct ldma_port *port, const uint8_t *l3, uint32_t length,
		   struct ldma_packet *ret)
{
	if (ldma_packet_decode(is_v4(port) ? LDMA_LINK_IPV4 : LDMA_LINK_IPV6, l3, length, length,
			       ret))
		return true;
	port->counters.foreign++;
	return false;
}

/* Returns whether packet i of a train is to be sent on. A train comes to the owner of its first packet, and the kernel
 * may have merged packets for other processes into it. Messages to QP 1 are sent on, too: the steering program
 * (bpf/steer.h) finds their owner. */
static bool is_stray(const struct ldma_port *port, const struct ldma_packet *packet, uint32_t i)
{
	return i && port->stray_fd >= 0 && packet->icrc_state == LDMA_ICRC_OK &&
	       (packet->dest_qp == LDMA_GSI_QP || packet->dest_qp >> 16 != port->slot);
}

/* Hands a decoded packet to the taps and to the device, unless it is a stray. segment: its place in a train.
 * is_rebuilt: its headers were put together here, and lack checksums. */
static void take(struct ldma_port *port, const struct ldma_packet *packet, uint8_t *l3,
		 uint32_t segment, bool is_rebuilt, const struct moment *moment)
{
	if (is_stray(port, packet, segment)) {
		port->counters.strays++;
		ldma_stray_send(port->stray_fd, l3, packet->length);
		return;
	}
	if (port->taps.count) {
		struct ldma_tapped tapped = {l3, packet->length, moment->tap_ns, (uint16_t)segment,
					     LDMA_RECORD_RX};

		if (is_rebuilt && packet->seen & LDMA_SEEN_UDP)
			ldma_packet_set_checksums(l3, packet->length);
		ldma_taps_packet(&port->taps, &tapped);
	}
	ldma_device_receive(port->device, packet, moment->now_ns);
}

/* Builds the headers that the system took off, without lengths and ID. */
static void build_headers(const struct ldma_port *port, const struct ldma_arrival *arrival,
			  struct headers *ret)
{
	uint8_t *p = ret->bytes;
	uint32_t l3 = 20;

	*ret = (struct headers){.counts = true}; /* as the trains of a port do */
	if (is_v4(port)) {
		p[0] = 0x45;
		p[1] = arrival->tos;
		p[6] = 0x40;
		p[8] = 64;
		p[9] = IPPROTO_UDP;
		memcpy(p + 12, arrival->from.bytes, 4);
		memcpy(p + 16, port->socket.local.bytes, 4);
	} else {
		l3 = 40;
		p[0] = (uint8_t)(0x60 | arrival->tos >> 4);
		p[1] = (uint8_t)(arrival->tos << 4);
		p[6] = IPPROTO_UDP;
		p[7] = 64;
		memcpy(p + 8, arrival->from.bytes, 16);
		memcpy(p + 24, port->socket.local.bytes, 16);
	}
	put16(p + l3, arrival->port);
	put16(p + l3 + 2, LDMA_ROCE2_PORT);
	ret->length = l3 + UDP_BYTES;
}

/* Writes the headers of packet i, which has `bytes` bytes after them, to l3. */
static void put_headers(const struct headers *headers, uint32_t i, uint32_t bytes, uint8_t *l3)
{
	memcpy(l3, headers->bytes, headers->length);
	if (l3[0] >> 4 == 4) {
		put16(l3 + 2, (uint16_t)(headers->length + bytes));
		put16(l3 + 4, (uint16_t)(headers->id + (headers->counts ? i : 0)));
	} else {
		put16(l3 + 4, (uint16_t)(UDP_BYTES + bytes));
	}
	put16(l3 + headers->length - 4, (uint16_t)(UDP_BYTES + bytes));
}

static uint32_t segment_bytes(uint32_t length, uint32_t segment, uint32_t at)
{
	return length - at < segment ? length - at : segment;
}

static void receive_udp(struct ldma_port *port, const struct ldma_arrival *arrival,
			const struct moment *moment)
{
	struct headers headers;
	uint32_t i = 0;

	build_headers(port, arrival, &headers);
	for (uint32_t at = 0; at < arrival->length; at += arrival->segment, i++) {
		uint32_t bytes = segment_bytes(arrival->length, arrival->segment, at);
		uint8_t *l3 = arrival->data + at - headers.length;
		uint32_t length = headers.length + bytes;
		struct ldma_packet packet;

		put_headers(&headers, i, bytes, l3);
		if (!decode(port, l3, length, &packet))
			continue;
		if (is_v4(port) && packet.icrc_state == LDMA_ICRC_BAD && !packet.error &&
		    ldma_icrc_find_id(&port->icrc, l3, length - LDMA_ICRC_BYTES, packet.icrc,
				      &packet.ip_id)) {
			put16(l3 + 4, packet.ip_id);
			packet.icrc_state = LDMA_ICRC_OK;
		}
		take(port, &packet, l3, i, true, moment);
	}
}

/* The IDs of a train that the kernel merged count up, or all are the same. Returns whether this packet, whose ICRC does
 * not fit an ID that counts up, shows that all are the same. */
static bool has_same_id(struct headers *headers, uint8_t *l3, uint32_t length, uint32_t icrc)
{
	put16(l3 + 4, headers->id);
	if (ldma_icrc(LDMA_L3_IPV4, l3, headers->length, length - LDMA_ICRC_BYTES) != icrc)
		return false;
	headers->counts = false;
	return true;
}

static void receive_frame_train(struct ldma_port *port, const struct ldma_received *frame,
				struct headers *headers, const struct moment *moment)
{
	uint32_t length = frame->length - headers->length, i = 0;

	for (uint32_t at = 0; at < length; at += frame->segment, i++) {
		uint32_t bytes = segment_bytes(length, frame->segment, at);
		uint8_t *l3 = frame->l3 + at;
		struct ldma_packet packet;

		put_headers(headers, i, bytes, l3);
		if (!decode(port, l3, headers->length + bytes, &packet))
			continue;
		if (packet.icrc_state == LDMA_ICRC_BAD && !packet.error && i && headers->counts &&
		    has_same_id(headers, l3, headers->length + bytes, packet.icrc)) {
			packet.ip_id = headers->id;
			packet.icrc_state = LDMA_ICRC_OK;
		}
		take(port, &packet, l3, i, true, moment);
	}
}

static void receive_frame(struct ldma_port *port, const struct ldma_received *frame,
			  const struct moment *moment)
{
	struct headers headers = {.length = (frame->l3[0] & 15) * 4u + UDP_BYTES, .counts = true};
	struct ldma_packet packet;

	/* A frame without such headers is taken as one packet, whose decoding says what is wrong with it. */
	if (frame->segment && frame->l3[0] >> 4 == 4 && headers.length >= 20 + UDP_BYTES &&
	    frame->length > headers.length && frame->length - headers.length > frame->segment) {
		memcpy(headers.bytes, frame->l3, headers.length);
		headers.id = get16(headers.bytes + 4);
		receive_frame_train(port, frame, &headers, moment);
	} else if (decode(port, frame->l3, frame->length, &packet)) {
		take(port, &packet, frame->l3, 0, false, moment);
	}
}

bool ldma_port_receive(struct ldma_port *port, uint64_t now_ns)
{
	uint8_t *buf = port->rx + HEADROOM;
	struct moment moment = {.now_ns = now_ns};
	struct ldma_arrival arrival;
	struct ldma_received frame;

	if (port->packet_fd >= 0) {
		if (ldma_packet_socket_receive(port->packet_fd, buf, &frame) <= 0)
			return false;
		moment.tap_ns = ldma_port_tap_time(port);
		receive_frame(port, &frame, &moment);
	} else {
		if (ldma_socket_receive(&port->socket, buf, &arrival) <= 0)
			return false;
		moment.tap_ns = ldma_port_tap_time(port);
		receive_udp(port, &arrival, &moment);
	}
	port->counters.received_trains++;
	return true;
}
