/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "base/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define UDP_BYTES 8

static uint32_t sum16(uint32_t sum, const uint8_t *p, size_t n)
{
	size_t i;

	for (i = 0; i + 1 < n; i += 2)
		sum += get16(p + i);
	if (i < n)
		sum += (uint32_t)p[i] << 8;
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void encode_header(const struct ldma_packet *packet, enum ldma_header header, uint8_t *p)
{
	switch (header) {
	case LDMA_RDETH:
		put24(p + 1, packet->ee_context);
		break;
	case LDMA_DETH:
		put32(p, packet->qkey);
		put24(p + 5, packet->src_qp);
		break;
	case LDMA_XRCETH:
		put24(p + 1, packet->xrc_srq);
		break;
	case LDMA_FETH:
		put32(p, packet->feth);
		break;
	case LDMA_RETH:
		put64(p, packet->va);
		put32(p + 8, packet->rkey);
		put32(p + 12, packet->dma_length);
		break;
	case LDMA_ATOMICETH:
		put64(p, packet->va);
		put32(p + 8, packet->rkey);
		put64(p + 12, packet->swap_add);
		put64(p + 20, packet->compare);
		break;
	case LDMA_AETH:
		p[0] = packet->syndrome;
		put24(p + 1, packet->msn);
		break;
	case LDMA_ATOMICACKETH:
		put64(p, packet->original);
		break;
	case LDMA_IMMDT:
		put32(p, packet->imm);
		break;
	case LDMA_IETH:
		put32(p, packet->inv_rkey);
		break;
	case LDMA_CNPETH:
	case LDMA_HEADER_COUNT:
		break;
	}
}

static void encode_ipv4(const struct ldma_packet *packet, uint8_t *p, size_t total)
{
	p[0] = 0x45;
	p[1] = packet->tos;
	put16(p + 2, (uint16_t)total);
	put16(p + 4, packet->ip_id);
	p[6] = 0x40; /* do not fragment */
	p[8] = packet->ttl;
	p[9] = 17;
	memcpy(p + 12, packet->src, 4);
	memcpy(p + 16, packet->dst, 4);
}

static void encode_ipv6(const struct ldma_packet *packet, uint8_t *p, size_t payload)
{
	p[0] = (uint8_t)(0x60 | packet->tos >> 4);
	p[1] = (uint8_t)(packet->tos << 4);
	put16(p + 4, (uint16_t)payload);
	p[6] = packet->version == 1 ? 0x1b : 17;
	p[7] = packet->ttl;
	memcpy(p + 8, packet->src, 16);
	memcpy(p + 24, packet->dst, 16);
}

static void encode_bth(const struct ldma_packet *packet, uint8_t *p, size_t pad)
{
	p[0] = packet->opcode;
	p[1] = (uint8_t)((packet->flags & 0xcf) | pad << 4);
	put16(p + 2, packet->pkey);
	p[4] = packet->bth4;
	put24(p + 5, packet->dest_qp);
	p[8] = (uint8_t)(packet->ack_req ? 0x80 : 0);
	put24(p + 9, packet->psn);
}

/* Returns the checksum, never 0: over IPv6 that would mean "no checksum", which IPv6 forbids (RFC 8200 8.1). */
static uint16_t udp6_checksum(const uint8_t *ip, const uint8_t *udp, size_t length)
{
	uint32_t sum = sum16((uint32_t)length + 17, ip + 8, 32);
	uint16_t checksum = fold(sum16(sum, udp, length));

	return checksum ? checksum : 0xffff;
}

void ldma_packet_set_checksums(uint8_t *l3, size_t length)
{
	if (l3[0] >> 4 == 4) {
		size_t header = (l3[0] & 15) * 4u;

		put16(l3 + 10, 0);
		put16(l3 + 10, fold(sum16(0, l3, header)));
		put16(l3 + header + 6, 0);
	} else {
		put16(l3 + IPV6_BYTES + 6, 0);
		put16(l3 + IPV6_BYTES + 6, udp6_checksum(l3, l3 + IPV6_BYTES, length - IPV6_BYTES));
	}
}

static size_t l3_bytes(const struct ldma_packet *packet)
{
	return packet->version == 2 && packet->ip_version == 4 ? IPV4_BYTES : IPV6_BYTES;
}

size_t ldma_packet_payload_offset(const struct ldma_packet *packet)
{
	return l3_bytes(packet) + (packet->version == 2 ? UDP_BYTES : 0) + LDMA_BTH_BYTES +
	       ldma_opcodes[packet->opcode].headers_bytes;
}

size_t ldma_packet_encode(const struct ldma_packet *packet, const void *payload,
			  size_t payload_length, uint8_t *buf, size_t capacity)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	size_t l3 = l3_bytes(packet);
	size_t bth = l3 + (packet->version == 2 ? UDP_BYTES : 0);
	size_t pad = -payload_length & 3, at = bth + LDMA_BTH_BYTES;
	size_t covered, total;
	enum ldma_l3 kind = packet->version == 1      ? LDMA_L3_GRH
			    : packet->ip_version == 4 ? LDMA_L3_IPV4
						      : LDMA_L3_IPV6;

	if (!info->name || (payload_length && !(info->role & LDMA_ROLE_PAYLOAD)))
		return 0;
	if (pad && !(info->role & LDMA_ROLE_LAST))
		return 0;
	if (payload_length > 0xffff)
		return 0;
	covered = at + info->headers_bytes + payload_length + pad;
	total = covered + LDMA_ICRC_BYTES;
	if (total > capacity || total - (l3 == IPV4_BYTES ? 0 : IPV6_BYTES) > 0xffff)
		return 0;

	memset(buf, 0, at + info->headers_bytes);
	if (l3 == IPV4_BYTES)
		encode_ipv4(packet, buf, total);
	else
		encode_ipv6(packet, buf, total - l3);
	if (packet->version == 2) {
		put16(buf + l3, packet->sport);
		put16(buf + l3 + 2, packet->dport);
		put16(buf + l3 + 4, (uint16_t)(total - l3));
	}
	encode_bth(packet, buf + bth, pad);
	for (uint32_t mask = info->headers; mask; mask &= mask - 1) {
		enum ldma_header header = (enum ldma_header)__builtin_ctz(mask);

		encode_header(packet, header, buf + at);
		at += ldma_header_bytes[header];
	}
	if (payload_length && payload != buf + at)
		memcpy(buf + at, payload, payload_length);
	memset(buf + at + payload_length, 0, pad);
	put32le(buf + covered, ldma_icrc(kind, buf, (uint32_t)bth, (uint32_t)covered));
	if (packet->version == 2)
		ldma_packet_set_checksums(buf, total);
	return total;
}
