/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes any bytes as a frame of any link type; what decodes cleanly must survive being built and decoded again. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "capture/print.h"
#include "check.h"
#include "wire/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint32_t links[] = {
	LDMA_LINK_ETHERNET,
	LDMA_LINK_SLL,
	LDMA_LINK_SLL2,
	LDMA_LINK_RAW,
	LDMA_LINK_IPV4,
	LDMA_LINK_IPV6,
	LDMA_LINK_NULL,
	LDMA_LINK_LOOP,
	LDMA_LINK_RAW_BSD,
	LDMA_LINK_RAW_OPENBSD,
	147, /* unknown */
};

#define SAME(field) CHECK(a->field == b->field)

static void check_same(const struct ldma_packet *a, const struct ldma_packet *b)
{
	SAME(version);
	SAME(ip_version);
	SAME(tos);
	SAME(ttl);
	SAME(ip_id);
	SAME(sport);
	SAME(dport);
	SAME(opcode);
	SAME(flags);
	SAME(bth4);
	SAME(ack_req);
	SAME(pkey);
	SAME(pad);
	SAME(dest_qp);
	SAME(psn);
	SAME(headers);
	SAME(va);
	SAME(rkey);
	SAME(dma_length);
	SAME(swap_add);
	SAME(compare);
	SAME(original);
	SAME(qkey);
	SAME(src_qp);
	SAME(imm);
	SAME(inv_rkey);
	SAME(ee_context);
	SAME(xrc_srq);
	SAME(feth);
	SAME(msn);
	SAME(syndrome);
	SAME(seen);
	SAME(mad_attribute);
	SAME(rpcrdma_xid);
	SAME(rpcrdma_credits);
	SAME(rpcrdma_proc);
	SAME(payload_length);
	CHECK(!memcmp(a->src, b->src, 16));
	CHECK(!memcmp(a->dst, b->dst, 16));
	CHECK(!memcmp(a->frame + a->payload_offset, b->frame + b->payload_offset,
		      a->payload_length));
}

static void check_round_trip(const struct ldma_packet *packet)
{
	static uint8_t buf[14 + 40 + 0x10000];
	struct ldma_packet again;
	uint8_t *l3 = buf + 14;
	size_t length = ldma_packet_encode(packet, packet->frame + packet->payload_offset,
					   packet->payload_length, l3, sizeof(buf) - 14);

	CHECK(length);
	put16(buf + 12, packet->version == 1 ? 0x8915 : packet->ip_version == 4 ? 0x0800 : 0x86dd);
	CHECK(ldma_packet_decode(LDMA_LINK_ETHERNET, buf, (uint32_t)length + 14,
				 (uint32_t)length + 14, &again));
	CHECK(!again.error);
	CHECK(again.icrc_state == LDMA_ICRC_OK);
	check_same(packet, &again);
}

static void check_printable(const struct ldma_packet *packet)
{
	static const struct ldma_text_style styles[] = {{.color = false}, {.color = true}};
	char *line = malloc(LDMA_LINE_MAX);

	for (size_t i = 0; i < 2; i++)
		CHECK(ldma_print_text(packet, &styles[i], NULL, line) <= LDMA_LINE_MAX);
	CHECK(ldma_print_json(packet, UINT64_MAX, NULL, line) <= LDMA_LINE_MAX);
	free(line);
}

static void check_bounds(const struct ldma_packet *packet)
{
	char text[64];

	CHECK(packet->captured <= packet->length);
	CHECK(ldma_packet_error_text(packet, text, sizeof(text)) < sizeof(text));
	CHECK(!packet->error || packet->error_at <= packet->length);
	if (!(packet->seen & LDMA_SEEN_PAYLOAD))
		return;
	CHECK(packet->payload_captured <= packet->payload_length);
	CHECK(packet->payload_length <= packet->length);
	if (packet->payload_captured)
		CHECK(packet->payload_captured <= packet->captured - packet->payload_offset);
}

/* Byte 0: the link type; byte 1: how much more was on the wire (or less, which contradicts itself). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ldma_packet packet;
	uint32_t captured, length;
	uint8_t *frame;

	if (size < 2 || size > 0x20000)
		return 0;
	captured = (uint32_t)size - 2;
	length = data[1] < 128 ? captured + data[1] * data[1] * 8u
			       : captured - (captured < data[1] - 127u ? captured : data[1] - 127u);
	frame = malloc(captured ? captured : 1); /* exactly, so that a byte too far is seen */
	memcpy(frame, data + 2, captured);
	if (ldma_packet_decode(links[data[0] % (sizeof(links) / sizeof(links[0]))], frame, captured,
			       length, &packet)) {
		check_bounds(&packet);
		check_printable(&packet);
		if (!packet.error)
			check_round_trip(&packet);
	}
	free(frame);
	return 0;
}
