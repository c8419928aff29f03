/* SPDX-License-Identifier: BSD-2-Clause */
/* A train has one receiver. Where processes share an address, it goes as a whole to the process that owns its first
 * packet (device/device.h: by the number of the queue pair). A packet for QP 1, which each process has, travels
 * alone. */
#include "port/train.h"

#include <string.h>

#include "base/bytes.h"
#include "wire/icrc.h"

/* Returns the bytes of the IP and UDP headers: the kernel makes its own. */
static uint32_t headers(const uint8_t *packet)
{
	return packet[0] >> 4 == 4 ? 28 : 48;
}

static struct ldma_address destination(const uint8_t *packet, uint32_t scope)
{
	struct ldma_address to = {.ip_version = packet[0] >> 4, .scope = scope};

	if (to.ip_version == 4)
		memcpy(to.bytes, packet + 16, 4);
	else
		memcpy(to.bytes, packet + 24, 16);
	return to;
}

static uint8_t type_of_service(const uint8_t *packet)
{
	return packet[0] >> 4 == 4 ? packet[1] : (uint8_t)(packet[0] << 4 | packet[1] >> 4);
}

bool ldma_train_add(struct ldma_train *train, uint32_t length, uint32_t scope)
{
	uint8_t *packet = ldma_train_slot(train);
	struct ldma_address to = destination(packet, scope);
	uint8_t tos = type_of_service(packet);
	uint32_t skipped = headers(packet), bytes = length - skipped;
	uint32_t dest_qp = get24(packet + skipped + 5);
	uint8_t owner = (uint8_t)(dest_qp >> 16);

	if (!train->count) {
		train->to = to;
		train->tos = tos;
		train->owner = owner;
		train->segment = (uint16_t)bytes;
	} else if (!ldma_address_equals(&to, &train->to) || tos != train->tos ||
		   owner != train->owner || dest_qp == LDMA_GSI_QP || bytes > train->segment ||
		   train->bytes + bytes > LDMA_TRAIN_BYTES) {
		return false;
	}
	train->is_closed = bytes < train->segment || dest_qp == LDMA_GSI_QP;
	train->iov[train->count++] = (struct iovec){packet + skipped, bytes};
	train->bytes += bytes;
	return true;
}

void ldma_train_restart(struct ldma_train *train, uint32_t length, uint32_t scope)
{
	const uint8_t *packet = ldma_train_slot(train);
	bool has_moved = train->count;

	if (has_moved)
		memcpy(train->packets[0], packet, length);
	ldma_train_clear(train);
	ldma_train_add(train, length, scope);
	if (has_moved)
		ldma_train_set_id(train, 0, 0);
}

const uint8_t *ldma_train_packet(const struct ldma_train *train, uint32_t i, uint32_t *ret_length)
{
	const uint8_t *packet = train->packets[i];

	*ret_length = headers(packet) + (uint32_t)train->iov[i].iov_len;
	return packet;
}

/* Returns the IPv4 header's checksum after a change of its ID (RFC 1624). */
static uint16_t checksum_after(const uint8_t *packet, uint16_t id)
{
	uint32_t sum = (uint16_t)~get16(packet + 10) + (uint16_t)~get16(packet + 4) + id;

	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~(sum + (sum >> 16));
}

void ldma_train_set_id(struct ldma_train *train, uint32_t i, uint16_t id)
{
	uint8_t *packet = train->packets[i];
	uint32_t length;

	if (train->to.ip_version != 4 || get16(packet + 4) == id)
		return;
	ldma_train_packet(train, i, &length);
	put16(packet + 10, checksum_after(packet, id));
	put16(packet + 4, id);
	length -= LDMA_ICRC_BYTES;
	put32le(packet + length, ldma_icrc(LDMA_L3_IPV4, packet, headers(packet), length));
}
