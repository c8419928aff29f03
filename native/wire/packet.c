/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/packet.h"

#include <string.h>

#include "base/bytes.h"
#include "wire/icrc.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_ROCE1 0x8915
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define PROTO_UDP 17
#define NEXT_HEADER_BTH 0x1b
#define IPV6_BYTES 40
#define UDP_BYTES 8
#define EXTENSIONS_MAX (LDMA_ICRC_MAX_BTH - IPV6_BYTES - UDP_BYTES)

static bool fail(struct ldma_packet *packet, enum ldma_packet_error error, uint32_t at,
		 const char *what, uint32_t a, uint32_t b)
{
	packet->error = (uint8_t)error;
	packet->error_at = at;
	packet->error_what = what;
	packet->error_a = a;
	packet->error_b = b;
	return true; /* it is RoCE all the same */
}

/* Returns how many bytes of the frame from pos on were captured. */
static uint32_t left(const struct ldma_packet *packet, uint32_t pos)
{
	return pos < packet->captured ? packet->captured - pos : 0;
}

static bool too_short(struct ldma_packet *packet, uint32_t at, const char *what, uint32_t need)
{
	return fail(packet, LDMA_PACKET_SHORT, at, what, need, left(packet, at));
}

/* RPC-over-RDMA version 1 (RFC 8166 4.2) starts with xid, version, credits, procedure. */
static void look_inside(struct ldma_packet *packet, const struct ldma_opcode_info *info)
{
	const uint8_t *p = packet->frame + packet->payload_offset;

	if (info->operation != LDMA_OP_SEND || !(info->role & LDMA_ROLE_FIRST))
		return;
	if (info->transport == LDMA_TRANSPORT_UD) {
		/* Management datagrams: base version 1, attribute at byte 16 (IBA 13.4.2). */
		if (packet->dest_qp <= 1 && packet->payload_captured >= 24 && p[0] == 1) {
			packet->mad_attribute = get16(p + 16);
			packet->seen |= LDMA_SEEN_MAD;
		}
		return;
	}
	if (packet->payload_captured < 28 || get32(p + 4) != 1 || get32(p + 12) > 4)
		return;
	packet->rpcrdma_xid = get32(p);
	packet->rpcrdma_credits = get32(p + 8);
	packet->rpcrdma_proc = (uint8_t)get32(p + 12);
	packet->seen |= LDMA_SEEN_RPCRDMA;
}

static void decode_header(struct ldma_packet *packet, enum ldma_header header, const uint8_t *p)
{
	switch (header) {
	case LDMA_RDETH:
		packet->ee_context = get24(p + 1);
		break;
	case LDMA_DETH:
		packet->qkey = get32(p);
		packet->src_qp = get24(p + 5);
		break;
	case LDMA_XRCETH:
		packet->xrc_srq = get24(p + 1);
		break;
	case LDMA_FETH:
		packet->feth = get32(p);
		break;
	case LDMA_RETH:
		packet->va = get64(p);
		packet->rkey = get32(p + 8);
		packet->dma_length = get32(p + 12);
		break;
	case LDMA_ATOMICETH:
		packet->va = get64(p);
		packet->rkey = get32(p + 8);
		packet->swap_add = get64(p + 12);
		packet->compare = get64(p + 20);
		break;
	case LDMA_AETH:
		packet->syndrome = p[0];
		packet->msn = get24(p + 1);
		break;
	case LDMA_ATOMICACKETH:
		packet->original = get64(p);
		break;
	case LDMA_IMMDT:
		packet->imm = get32(p);
		break;
	case LDMA_IETH:
		packet->inv_rkey = get32(p);
		break;
	case LDMA_CNPETH:
	case LDMA_HEADER_COUNT:
		break;
	}
}

/* Checks the rules that tie the headers of one packet together. */
static void check_consistency(struct ldma_packet *packet, const struct ldma_opcode_info *info)
{
	uint32_t at = packet->bth_offset, length = packet->payload_length;
	uint32_t reth = packet->payload_offset - ldma_header_bytes[LDMA_RETH] -
			(info->headers & LDMA_HAS_IMMDT ? ldma_header_bytes[LDMA_IMMDT] : 0);

	if (packet->flags & 0x0f)
		fail(packet, LDMA_PACKET_TRANSPORT_VERSION, at + 1, "BTH", packet->flags & 0x0f, 0);
	else if (!(info->role & LDMA_ROLE_PAYLOAD) && length + packet->pad > 0)
		fail(packet, LDMA_PACKET_PAYLOAD, packet->payload_offset, info->name,
		     length + packet->pad, 0);
	else if (packet->pad && !(info->role & LDMA_ROLE_LAST))
		fail(packet, LDMA_PACKET_PAD_POSITION, at + 1, "BTH", packet->pad, 0);
	else if ((length + packet->pad) & 3) /* the pad fills the last word (IBA 9.2) */
		fail(packet, LDMA_PACKET_ALIGNMENT, packet->payload_offset, "payload",
		     length + packet->pad, 4);
	else if (info->operation == LDMA_OP_ATOMIC_WRITE && length != 8)
		fail(packet, LDMA_PACKET_PAYLOAD, packet->payload_offset, info->name, length, 8);
	else if (info->operation == LDMA_OP_WRITE && (info->headers & LDMA_HAS_RETH) &&
		 (info->role & LDMA_ROLE_LAST ? packet->dma_length != length
					      : packet->dma_length <= length))
		fail(packet, LDMA_PACKET_WRITE_LENGTH, reth, "RETH", packet->dma_length, length);
}

/* Decodes the BTH at pos and what follows it, up to end (where the frame ends according to its lengths). */
static bool decode_transport(struct ldma_packet *packet, enum ldma_l3 kind, uint32_t pos,
			     uint32_t end)
{
	const uint8_t *frame = packet->frame, *p = frame + pos;
	const struct ldma_opcode_info *info;
	uint32_t header, covered;

	packet->bth_offset = pos;
	if (end - pos < LDMA_BTH_BYTES + LDMA_ICRC_BYTES)
		return fail(packet, LDMA_PACKET_SHORT, pos, "BTH", LDMA_BTH_BYTES + LDMA_ICRC_BYTES,
			    end - pos);
	if (left(packet, pos) < LDMA_BTH_BYTES)
		return too_short(packet, pos, "BTH", LDMA_BTH_BYTES);

	packet->opcode = p[0];
	packet->flags = p[1];
	packet->pad = (p[1] >> 4) & 3;
	packet->pkey = get16(p + 2);
	packet->bth4 = p[4];
	packet->dest_qp = get24(p + 5);
	packet->ack_req = p[8] >> 7;
	packet->psn = get24(p + 9);
	packet->seen |= LDMA_SEEN_BTH;

	covered = end - LDMA_ICRC_BYTES;
	if (end <= packet->captured) {
		packet->icrc = get32le(frame + covered);
		packet->seen |= LDMA_SEEN_ICRC;
		if (ldma_icrc(kind, frame + packet->l3_offset, pos - packet->l3_offset,
			      covered - packet->l3_offset) == packet->icrc)
			packet->icrc_state = LDMA_ICRC_OK;
		else
			packet->icrc_state = LDMA_ICRC_BAD;
	}

	info = &ldma_opcodes[packet->opcode];
	if (!info->name)
		return fail(packet, LDMA_PACKET_OPCODE, pos, "BTH", packet->opcode, 0);
	pos += LDMA_BTH_BYTES;
	for (uint32_t mask = info->headers; mask; mask &= mask - 1) {
		header = (uint32_t)__builtin_ctz(mask);
		if (ldma_header_bytes[header] > covered - pos)
			return fail(packet, LDMA_PACKET_SHORT, pos, ldma_header_names[header],
				    ldma_header_bytes[header], covered - pos);
		if (ldma_header_bytes[header] > left(packet, pos))
			return too_short(packet, pos, ldma_header_names[header],
					 ldma_header_bytes[header]);
		decode_header(packet, header, frame + pos);
		packet->headers |= (uint16_t)(1u << header);
		pos += ldma_header_bytes[header];
	}

	packet->payload_offset = pos;
	if (packet->pad > covered - pos)
		return fail(packet, LDMA_PACKET_PAD, packet->bth_offset + 1, "BTH", packet->pad,
			    covered - pos);
	packet->payload_length = covered - pos - packet->pad;
	packet->payload_captured = left(packet, pos) < packet->payload_length
					   ? left(packet, pos)
					   : packet->payload_length;
	packet->seen |= LDMA_SEEN_PAYLOAD;
	look_inside(packet, info);
	check_consistency(packet, info);
	if (!packet->error && end > packet->captured)
		fail(packet, LDMA_PACKET_CAPTURE, packet->captured, "packet", packet->captured,
		     packet->length);
	return true;
}

/* Decodes UDP at pos; end is where IP says that its payload ends. */
static bool decode_udp(struct ldma_packet *packet, enum ldma_l3 kind, uint32_t pos, uint32_t end)
{
	const uint8_t *p = packet->frame + pos;

	packet->version = 2;
	packet->sport = get16(p);
	packet->dport = get16(p + 2);
	packet->udp_length = get16(p + 4);
	packet->udp_checksum = get16(p + 6);
	packet->seen |= LDMA_SEEN_UDP;
	if (packet->error)
		return true;
	if (end > packet->length)
		return fail(packet, LDMA_PACKET_IP_LENGTH, packet->l3_offset, "IP",
			    end - packet->l3_offset, packet->length - packet->l3_offset);
	if (packet->udp_length != end - pos)
		return fail(packet, LDMA_PACKET_UDP_LENGTH, pos + 4, "UDP", packet->udp_length,
			    end - pos);
	if (packet->udp_length < UDP_BYTES)
		return fail(packet, LDMA_PACKET_SHORT, pos + 4, "UDP", UDP_BYTES,
			    packet->udp_length);
	return decode_transport(packet, kind, pos + UDP_BYTES, end);
}

/* Returns whether UDP to the RoCE port is at pos; without that nothing shows that a broken packet is RoCE. */
static bool is_roce_port(const struct ldma_packet *packet, uint32_t pos)
{
	return left(packet, pos) >= UDP_BYTES && get16(packet->frame + pos + 2) == LDMA_ROCE2_PORT;
}

static bool decode_ipv4(struct ldma_packet *packet, uint32_t pos)
{
	const uint8_t *p = packet->frame + pos;
	uint32_t header, total, offset;

	if (left(packet, pos) < 20 || p[9] != PROTO_UDP)
		return false;
	header = (uint32_t)(p[0] & 15) * 4;
	if (!is_roce_port(packet, pos + (header < 20 ? 20 : header)))
		return false;
	total = get16(p + 2);
	offset = get16(p + 6);
	packet->l3_offset = pos;
	packet->ip_version = 4;
	packet->tos = p[1];
	packet->ip_id = get16(p + 4);
	packet->ttl = p[8];
	memcpy(packet->src, p + 12, 4);
	memcpy(packet->dst, p + 16, 4);
	packet->seen |= LDMA_SEEN_IP;
	if (p[0] >> 4 != 4)
		fail(packet, LDMA_PACKET_IP_VERSION, pos, "IP", p[0] >> 4, 4);
	else if (header < 20 || total < header)
		fail(packet, LDMA_PACKET_IP_HEADER, pos, "IP", header, total);
	else if (offset & 0x3fff) /* more fragments, or an offset */
		fail(packet, LDMA_PACKET_FRAGMENT, pos + 6, "IP", (offset & 0x1fff) * 8u,
		     offset >> 13 & 1);
	return decode_udp(packet, LDMA_L3_IPV4, pos + (header < 20 ? 20 : header), pos + total);
}

static bool is_extension(uint8_t next)
{
	return next == 0 || next == 43 || next == 44 || next == 51 || next == 60 || next == 135;
}

static bool decode_ipv6(struct ldma_packet *packet, uint32_t pos)
{
	const uint8_t *p = packet->frame + pos;
	uint32_t at = pos + IPV6_BYTES, size;
	uint8_t next;

	if (left(packet, pos) < IPV6_BYTES)
		return false;
	next = p[6];
	while (is_extension(next)) {
		const uint8_t *extension = packet->frame + at;

		if (left(packet, at) < 8)
			return false;
		if (next == 44) {
			size = 8;
			if (get16(extension + 2) & 0xfff9)
				fail(packet, LDMA_PACKET_FRAGMENT, at, "IP",
				     get16(extension + 2) & 0xfff8, extension[3] & 1);
		} else if (next == 51) {
			size = (extension[1] + 2u) * 4;
		} else {
			size = (extension[1] + 1u) * 8;
		}
		if (size > EXTENSIONS_MAX - (at - pos - IPV6_BYTES))
			return false;
		next = extension[0];
		at += size;
	}
	if (next != PROTO_UDP || !is_roce_port(packet, at))
		return false;
	packet->l3_offset = pos;
	packet->ip_version = 6;
	packet->tos = (uint8_t)(get16(p) >> 4);
	packet->ttl = p[7];
	memcpy(packet->src, p + 8, 16);
	memcpy(packet->dst, p + 24, 16);
	packet->seen |= LDMA_SEEN_IP;
	if (p[0] >> 4 != 6)
		fail(packet, LDMA_PACKET_IP_VERSION, pos, "IP", p[0] >> 4, 6);
	else if (get16(p + 4) < at - pos - IPV6_BYTES)
		fail(packet, LDMA_PACKET_IP_LENGTH, pos + 4, "IP", get16(p + 4),
		     at - pos - IPV6_BYTES);
	return decode_udp(packet, LDMA_L3_IPV6, at, pos + IPV6_BYTES + get16(p + 4));
}

static bool decode_grh(struct ldma_packet *packet, uint32_t pos)
{
	const uint8_t *p = packet->frame + pos;
	uint32_t end;

	packet->version = 1;
	packet->l3_offset = pos;
	packet->ip_version = 6;
	if (left(packet, pos) < IPV6_BYTES)
		return too_short(packet, pos, "GRH", IPV6_BYTES);
	packet->tos = (uint8_t)(get16(p) >> 4);
	packet->ttl = p[7];
	memcpy(packet->src, p + 8, 16);
	memcpy(packet->dst, p + 24, 16);
	packet->seen |= LDMA_SEEN_IP;
	end = pos + IPV6_BYTES + get16(p + 4);
	if (p[0] >> 4 != 6)
		return fail(packet, LDMA_PACKET_IP_VERSION, pos, "GRH", p[0] >> 4, 6);
	if (p[6] != NEXT_HEADER_BTH)
		return fail(packet, LDMA_PACKET_NEXT_HEADER, pos + 6, "GRH", p[6], NEXT_HEADER_BTH);
	if (end > packet->length)
		return fail(packet, LDMA_PACKET_IP_LENGTH, pos + 4, "GRH", get16(p + 4),
			    packet->length - pos - IPV6_BYTES);
	return decode_transport(packet, LDMA_L3_GRH, pos + IPV6_BYTES, end);
}

static bool decode_ethertype(struct ldma_packet *packet, uint32_t type, uint32_t pos)
{
	while (type == ETHERTYPE_VLAN || type == ETHERTYPE_QINQ) {
		if (packet->vlan_count == 2 || left(packet, pos) < 4)
			return false;
		packet->vlan[packet->vlan_count++] = get16(packet->frame + pos);
		type = get16(packet->frame + pos + 2);
		pos += 4;
	}
	switch (type) {
	case ETHERTYPE_IPV4:
		return decode_ipv4(packet, pos);
	case ETHERTYPE_IPV6:
		return decode_ipv6(packet, pos);
	case ETHERTYPE_ROCE1:
		return decode_grh(packet, pos);
	}
	return false;
}

static bool decode_link(struct ldma_packet *packet, uint32_t link)
{
	const uint8_t *frame = packet->frame;
	uint32_t captured = packet->captured;

	switch (link) {
	case LDMA_LINK_ETHERNET:
		return captured >= 14 && decode_ethertype(packet, get16(frame + 12), 14);
	case LDMA_LINK_SLL:
		return captured >= 16 && decode_ethertype(packet, get16(frame + 14), 16);
	case LDMA_LINK_SLL2:
		return captured >= 20 && decode_ethertype(packet, get16(frame), 20);
	case LDMA_LINK_NULL:
	case LDMA_LINK_LOOP:
		if (captured < 5)
			return false;
		return frame[4] >> 4 == 4 ? decode_ipv4(packet, 4) : decode_ipv6(packet, 4);
	case LDMA_LINK_RAW:
	case LDMA_LINK_RAW_BSD:
	case LDMA_LINK_RAW_OPENBSD:
		if (captured < 1)
			return false;
		return frame[0] >> 4 == 4 ? decode_ipv4(packet, 0) : decode_ipv6(packet, 0);
	case LDMA_LINK_IPV4:
		return decode_ipv4(packet, 0);
	case LDMA_LINK_IPV6:
		return decode_ipv6(packet, 0);
	}
	return false;
}

bool ldma_packet_decode(uint32_t link, const uint8_t *frame, uint32_t captured, uint32_t length,
			struct ldma_packet *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->frame = frame;
	ret->captured = captured < length ? captured : length;
	ret->length = length;
	if (!decode_link(ret, link))
		return false;
	if (ret->error && ret->icrc_state == LDMA_ICRC_UNKNOWN && captured >= length)
		ret->icrc_state = LDMA_ICRC_BAD;
	return true;
}
