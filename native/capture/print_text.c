/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/chars.h"
#include "capture/print.h"

#define RESET "\033[0m"
#define DIM "\033[2m"
#define BOLD_RED "\033[1;31m"
#define YELLOW "\033[33m"
#define CYAN "\033[36m"
#define GREEN "\033[32m"

#define TIME_WIDTH 11
#define HOSTS_WIDTH 23
#define OPCODE_WIDTH 23

static char *paint(char *p, const struct ldma_text_style *style, const char *color)
{
	return style->color ? put_string(p, color) : p;
}

static char *put_time(char *p, const struct ldma_packet *packet,
		      const struct ldma_text_style *style)
{
	char text[32], *end = text;
	bool before = packet->time_ns < style->start_ns;
	uint64_t ns =
		before ? style->start_ns - packet->time_ns : packet->time_ns - style->start_ns;
	uint64_t us = ns / 1000;

	if (before)
		*end++ = '-';
	end = put_decimal(end, us / 1000000);
	*end++ = '.';
	for (uint64_t digit = 100000; digit; digit /= 10)
		*end++ = (char)('0' + us / digit % 10);
	for (ptrdiff_t i = end - text; i < TIME_WIDTH; i++)
		*p++ = ' ';
	return put_bytes(p, text, (size_t)(end - text));
}

size_t ldma_print_opcode(uint8_t opcode, char *buf)
{
	static const struct {
		const char *from, *to;
	} words[] = {
		{"RDMA_", ""},
		{"_WITH_IMMEDIATE", "+IMM"},
		{"_WITH_INVALIDATE", "+INV"},
		{"ACKNOWLEDGE", "ACK"},
		{"_", " "},
	};
	const char *name = ldma_opcodes[opcode].name;
	char *p = buf;

	if (!name) {
		p = put_hex(PUT(p, "opcode 0x"), opcode, 2);
		return (size_t)(p - buf);
	}
	while (*name) {
		size_t i = 0;

		while (i < sizeof(words) / sizeof(*words) &&
		       strncmp(name, words[i].from, strlen(words[i].from)))
			i++;
		if (i < sizeof(words) / sizeof(*words)) {
			p = put_string(p, words[i].to);
			name += strlen(words[i].from);
		} else {
			*p++ = *name++;
		}
	}
	return (size_t)(p - buf);
}

static const char *opcode_color(const struct ldma_packet *packet)
{
	uint8_t role = ldma_opcodes[packet->opcode].role;

	if (packet->headers & LDMA_HAS_AETH) {
		if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_NAK)
			return BOLD_RED;
		if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_RNR_NAK)
			return YELLOW;
	}
	if (packet->opcode == LDMA_OPCODE_CNP)
		return YELLOW;
	return role & LDMA_ROLE_REQUEST ? CYAN : GREEN;
}

static char *text_headers(char *p, const struct ldma_packet *packet,
			  const struct ldma_text_style *style)
{
	uint32_t has = packet->headers;

	if (has & LDMA_HAS_RDETH)
		p = put_hex(PUT(p, "  eec 0x"), packet->ee_context, 6);
	if (has & LDMA_HAS_DETH)
		p = put_hex(PUT(p, "  from qp 0x"), packet->src_qp, 6);
	if (has & LDMA_HAS_XRCETH)
		p = put_hex(PUT(p, "  srq 0x"), packet->xrc_srq, 6);
	if (has & LDMA_HAS_FETH)
		p = put_hex(PUT(p, "  feth 0x"), packet->feth, 2);
	if (has & (LDMA_HAS_RETH | LDMA_HAS_ATOMICETH)) {
		p = put_hex(PUT(p, "  va 0x"), packet->va, 1);
		p = put_hex(PUT(p, " rkey 0x"), packet->rkey, 1);
	}
	if (has & LDMA_HAS_RETH)
		p = put_decimal(PUT(p, " len "), packet->dma_length);
	if (has & LDMA_HAS_ATOMICETH) {
		p = put_string(p, packet->opcode & 1 ? " swap 0x" : " add 0x");
		p = put_hex(p, packet->swap_add, 1);
		p = put_hex(PUT(p, " compare 0x"), packet->compare, 1);
	}
	if (has & LDMA_HAS_AETH) {
		p = put_decimal(PUT(p, "  msn "), packet->msn);
		if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_NAK) {
			p = PUT(paint(p, style, BOLD_RED), "  NAK ");
			p = put_string(p, ldma_nak_reason(packet->syndrome));
			p = paint(p, style, RESET);
		} else if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_RNR_NAK) {
			p = PUT(paint(p, style, YELLOW), "  RNR NAK wait ");
			p = put_decimal(p, ldma_rnr_timer_us(packet->syndrome));
			p = paint(PUT(p, " us"), style, RESET);
		}
	}
	if (has & LDMA_HAS_ATOMICACKETH)
		p = put_hex(PUT(p, "  was 0x"), packet->original, 1);
	if (has & LDMA_HAS_IMMDT)
		p = put_hex(PUT(p, "  imm 0x"), packet->imm, 8);
	if (has & LDMA_HAS_IETH)
		p = put_hex(PUT(p, "  invalidates 0x"), packet->inv_rkey, 1);
	return p;
}

static char *text_flags(char *p, const struct ldma_packet *packet)
{
	if (packet->ack_req)
		p = PUT(p, " ackreq");
	if (ldma_packet_solicited(packet))
		p = PUT(p, " solicited");
	if (ldma_packet_fecn(packet))
		p = PUT(p, " fecn");
	if (ldma_packet_becn(packet))
		p = PUT(p, " becn");
	if ((packet->tos & 3) == 3)
		p = PUT(p, " ce");
	return p;
}

static char *text_hosts(char *p, const struct ldma_packet *packet)
{
	char *start = p;

	if (packet->direction)
		p = packet->direction == LDMA_DIRECTION_RX ? PUT(p, "rx ") : PUT(p, "tx ");
	if (packet->seen & LDMA_SEEN_IP) {
		p += ldma_print_address(packet->src, packet->ip_version, p);
		p = PUT(p, " > ");
		p += ldma_print_address(packet->dst, packet->ip_version, p);
	}
	for (int i = 0; i < packet->vlan_count; i++)
		p = put_decimal(PUT(p, " vlan "), packet->vlan[i] & 0xfffu);
	if (packet->version == 1)
		p = PUT(p, " RoCEv1");
	return pad_to(p, start, HOSTS_WIDTH);
}

size_t ldma_print_text(const struct ldma_packet *packet, const struct ldma_text_style *style,
		       const struct ldma_inside *inside, char *buf)
{
	char *p = paint(buf, style, DIM), *start;

	p = put_time(p, packet, style);
	p = PUT(paint(p, style, RESET), "  ");
	p = text_hosts(p, packet);
	if (packet->seen & LDMA_SEEN_BTH) {
		p = put_hex(PUT(p, "  qp 0x"), packet->dest_qp, 6);
		p = paint(PUT(p, "  "), style, opcode_color(packet));
		start = p;
		p += ldma_print_opcode(packet->opcode, p);
		p = paint(pad_to(p, start, OPCODE_WIDTH), style, RESET);
		start = put_decimal(PUT(p, " psn "), packet->psn);
		p = pad_to(start, p, sizeof(" psn 16777215") - 1);
	}
	if (packet->seen & LDMA_SEEN_PAYLOAD)
		p = PUT(put_decimal(PUT(p, "  "), packet->payload_length), " B");
	p = text_flags(p, packet);
	p = text_headers(p, packet, style);
	if (inside && inside->length) {
		p = put_bytes(PUT(p, "  | "), inside->text, inside->length);
	}
	if (packet->icrc_state == LDMA_ICRC_OK)
		p = paint(PUT(paint(p, style, DIM), "  icrc ok"), style, RESET);
	else if (packet->icrc_state == LDMA_ICRC_BAD)
		p = paint(PUT(paint(p, style, BOLD_RED), "  ICRC BAD"), style, RESET);
	if (packet->error) {
		p = PUT(paint(p, style, packet->error == LDMA_PACKET_CAPTURE ? DIM : BOLD_RED),
			"  ! ");
		p += ldma_packet_error_text(packet, p, 256);
		p = paint(p, style, RESET);
	}
	*p++ = '\n';
	return (size_t)(p - buf);
}
