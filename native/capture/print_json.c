/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>

#include "base/chars.h"
#include "capture/print.h"

#define FIELD(p, name, value) put_decimal(PUT(p, ",\"" name "\":"), (value))
#define FLAG(p, name, value)                                                                       \
	((value) ? PUT(p, ",\"" name "\":true") : PUT(p, ",\"" name "\":false"))

size_t ldma_print_address(const uint8_t *address, uint8_t ip_version, char *buf)
{
	char *p = buf;

	if (ip_version != 4) {
		inet_ntop(AF_INET6, address, buf, 46);
		return strlen(buf);
	}
	for (int i = 0; i < 4; i++) {
		if (i)
			*p++ = '.';
		p = put_decimal(p, address[i]);
	}
	return (size_t)(p - buf);
}

static char *put_address(char *p, const uint8_t *address, uint8_t ip_version)
{
	*p++ = '"';
	p += ldma_print_address(address, ip_version, p);
	*p++ = '"';
	return p;
}

static char *json_link(char *p, const struct ldma_packet *packet)
{
	if (packet->direction == LDMA_DIRECTION_RX)
		p = PUT(p, ",\"direction\":\"rx\"");
	else if (packet->direction == LDMA_DIRECTION_TX)
		p = PUT(p, ",\"direction\":\"tx\"");
	if (packet->vlan_count) {
		p = put_decimal(PUT(p, ",\"vlan\":["), packet->vlan[0] & 0xfffu);
		if (packet->vlan_count > 1)
			p = put_decimal(PUT(p, ","), packet->vlan[1] & 0xfffu);
		p = PUT(p, "]");
	}
	return p;
}

static char *json_network(char *p, const struct ldma_packet *packet)
{
	if (packet->seen & LDMA_SEEN_IP) {
		p = put_address(PUT(p, ",\"src\":"), packet->src, packet->ip_version);
		p = put_address(PUT(p, ",\"dst\":"), packet->dst, packet->ip_version);
	}
	if (packet->seen & LDMA_SEEN_UDP) {
		p = FIELD(p, "sport", packet->sport);
		p = FIELD(p, "dport", packet->dport);
	} else {
		p = PUT(p, ",\"sport\":null,\"dport\":null");
	}
	if (packet->version == 1)
		return PUT(p, ",\"version\":\"roce1\"");
	return PUT(p, ",\"version\":\"roce2\"");
}

static char *json_bth(char *p, const struct ldma_packet *packet)
{
	const char *name = ldma_opcodes[packet->opcode].name;

	p = FIELD(p, "opcode", packet->opcode);
	p = PUT(p, ",\"opcode_name\":");
	if (name) {
		*p++ = '"';
		p = put_string(p, name);
		*p++ = '"';
	} else {
		p = PUT(p, "null");
	}
	p = FLAG(p, "solicited", ldma_packet_solicited(packet));
	p = FLAG(p, "migreq", ldma_packet_migreq(packet));
	p = FIELD(p, "pad", packet->pad);
	p = FIELD(p, "pkey", packet->pkey);
	p = FLAG(p, "fecn", ldma_packet_fecn(packet));
	p = FLAG(p, "becn", ldma_packet_becn(packet));
	p = FIELD(p, "dest_qp", packet->dest_qp);
	p = FLAG(p, "ack_req", packet->ack_req);
	p = FIELD(p, "psn", packet->psn);
	return p;
}

static char *json_aeth(char *p, const struct ldma_packet *packet)
{
	p = put_decimal(PUT(p, ",\"aeth\":{\"syndrome\":"), packet->syndrome);
	p = FIELD(p, "msn", packet->msn);
	switch (ldma_aeth_kind(packet->syndrome)) {
	case LDMA_AETH_ACK:
		p = PUT(p, ",\"kind\":\"ack\"");
		break;
	case LDMA_AETH_RNR_NAK:
		p = PUT(p, ",\"kind\":\"rnr_nak\"");
		p = FIELD(p, "timer_us", ldma_rnr_timer_us(packet->syndrome));
		break;
	case LDMA_AETH_NAK:
		p = PUT(p, ",\"kind\":\"nak\",\"reason\":\"");
		p = PUT(put_string(p, ldma_nak_reason(packet->syndrome)), "\"");
		break;
	case LDMA_AETH_RESERVED:
		p = PUT(p, ",\"kind\":\"reserved\"");
		break;
	}
	return PUT(p, "}");
}

static char *json_headers(char *p, const struct ldma_packet *packet)
{
	uint32_t has = packet->headers;

	if (has & LDMA_HAS_RDETH) {
		p = put_decimal(PUT(p, ",\"rdeth\":{\"ee_context\":"), packet->ee_context);
		p = PUT(p, "}");
	}
	if (has & LDMA_HAS_DETH) {
		p = put_decimal(PUT(p, ",\"deth\":{\"qkey\":"), packet->qkey);
		p = PUT(FIELD(p, "src_qp", packet->src_qp), "}");
	}
	if (has & LDMA_HAS_XRCETH) {
		p = put_decimal(PUT(p, ",\"xrceth\":{\"srq\":"), packet->xrc_srq);
		p = PUT(p, "}");
	}
	if (has & LDMA_HAS_FETH) {
		/* Placement type in bits 3:0, selectivity in bits 5:4 (IBA A19). */
		p = put_decimal(PUT(p, ",\"feth\":{\"placement\":"), packet->feth & 15);
		p = PUT(FIELD(p, "selectivity", packet->feth >> 4 & 3), "}");
	}
	if (has & LDMA_HAS_RETH) {
		p = put_decimal(PUT(p, ",\"reth\":{\"va\":"), packet->va);
		p = FIELD(p, "rkey", packet->rkey);
		p = PUT(FIELD(p, "length", packet->dma_length), "}");
	}
	if (has & LDMA_HAS_ATOMICETH) {
		p = put_decimal(PUT(p, ",\"atomic\":{\"va\":"), packet->va);
		p = FIELD(p, "rkey", packet->rkey);
		p = FIELD(p, "swap_add", packet->swap_add);
		p = PUT(FIELD(p, "compare", packet->compare), "}");
	}
	if (has & LDMA_HAS_AETH)
		p = json_aeth(p, packet);
	if (has & LDMA_HAS_ATOMICACKETH) {
		p = put_decimal(PUT(p, ",\"atomic_ack\":{\"original\":"), packet->original);
		p = PUT(p, "}");
	}
	if (has & LDMA_HAS_IMMDT)
		p = FIELD(p, "imm", packet->imm);
	if (has & LDMA_HAS_IETH) {
		p = put_decimal(PUT(p, ",\"ieth\":{\"rkey\":"), packet->inv_rkey);
		p = PUT(p, "}");
	}
	return p;
}

size_t ldma_print_json(const struct ldma_packet *packet, uint64_t n,
		       const struct ldma_inside *inside, char *buf)
{
	static const char *const icrc_ok[] = {"null", "true", "false"};
	char *p = put_decimal(PUT(buf, "{\"n\":"), n);

	p = FIELD(p, "time_ns", packet->time_ns);
	p = FIELD(p, "length", packet->length);
	p = json_link(p, packet);
	p = json_network(p, packet);
	if (packet->seen & LDMA_SEEN_BTH)
		p = json_bth(p, packet);
	if (packet->seen & LDMA_SEEN_PAYLOAD)
		p = FIELD(p, "payload_length", packet->payload_length);
	if (packet->seen & LDMA_SEEN_ICRC)
		p = FIELD(p, "icrc", packet->icrc);
	else
		p = PUT(p, ",\"icrc\":null");
	p = put_string(PUT(p, ",\"icrc_ok\":"), icrc_ok[packet->icrc_state]);
	p = json_headers(p, packet);
	if (inside && inside->length) {
		*p++ = ',';
		p = put_bytes(p, inside->text, inside->length);
	}
	if (packet->error) {
		p = PUT(p, ",\"error\":\"");
		p += ldma_packet_error_text(packet, p, 256);
		*p++ = '"';
	}
	p = PUT(p, "}\n");
	return (size_t)(p - buf);
}
