/* SPDX-License-Identifier: BSD-2-Clause */
/* Any sequence of packets through the flow table and the columns: what a hostile capture can do to both. */
#include <string.h>

#include "base/bytes.h"
#include "capture/columns.h"
#include "capture/flow.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A packet is taken from this many bytes, so that the fuzzer need not find ICRCs and lengths that fit. */
#define STEP 16
#define PACKETS 512

static void make_packet(const uint8_t *p, uint64_t *now_ns, struct ldma_packet *ret)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[p[0]];

	memset(ret, 0, sizeof(*ret));
	*now_ns += (uint64_t)(int8_t)p[12] * 100000;
	ret->time_ns = *now_ns;
	ret->seen = LDMA_SEEN_IP | LDMA_SEEN_UDP | LDMA_SEEN_BTH | LDMA_SEEN_ICRC;
	ret->version = 2;
	ret->ip_version = p[1] & 1 ? 6 : 4;
	ret->src[0] = p[1] >> 1 & 3;
	ret->dst[0] = p[1] >> 3 & 3;
	ret->direction = (p[1] >> 5 & 3) % 3;
	ret->icrc_state = p[1] & 0x80 ? LDMA_ICRC_BAD : LDMA_ICRC_OK;
	ret->opcode = p[0];
	ret->dest_qp = p[2] & 15;
	ret->psn = get24(p + 3);
	ret->ack_req = p[2] >> 7;
	ret->headers = info->name ? info->headers : 0;
	ret->syndrome = p[6];
	ret->msn = get16(p + 7);
	ret->dma_length = get32(p + 9);
	ret->length = 62 + get16(p + 13);
	ret->error = p[15] & 1 ? LDMA_PACKET_SHORT : LDMA_PACKET_OK;
	ret->error_what = "BTH";
	if (p[15] & 2)
		return; /* cut before its payload */
	ret->seen |= LDMA_SEEN_PAYLOAD;
	ret->payload_length = get16(p + 13);
}

/* Whole datagrams to QP 1 for the connection manager's part: as many bytes as there are. */
static void make_mad(const uint8_t *p, size_t size, struct ldma_packet *packet)
{
	packet->frame = p;
	packet->captured = (uint32_t)size;
	packet->payload_captured = packet->payload_length = (uint32_t)size;
	packet->dest_qp = 1;
	if (size >= 24) {
		packet->mad_attribute = get16(p + 16);
		packet->seen |= LDMA_SEEN_MAD;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ldma_flow_table *table = ldma_flow_table_create();
	struct ldma_columns *columns = ldma_columns_create(PACKETS / 2);
	struct ldma_batch *batch = ldma_batch_create(PACKETS, 0);
	uint64_t now_ns = 1000000000;
	uint32_t taken = 0;

	for (size_t at = 0; at + STEP <= size && batch->count < PACKETS; at += STEP) {
		struct ldma_packet *packet = &batch->packets[batch->count++];

		make_packet(data + at, &now_ns, packet);
		if (packet->opcode == LDMA_OPCODE_UD_SEND_ONLY && (data[at + 15] & 4))
			make_mad(data + at, size - at < 256 ? size - at : 256, packet);
		ldma_flow_table_packet(table, packet);
	}
	for (uint32_t i = 0; ldma_flow_table_get(table, i); i++)
		ldma_flow_rtt_ns(ldma_flow_table_get(table, i), NULL, 990);
	while (taken < batch->count) {
		ldma_columns_reset(columns);
		taken += ldma_columns_append(columns, batch, taken);
		CHECK(columns->rows); /* else it would never end */
	}
	ldma_batch_destroy(batch);
	ldma_columns_destroy(columns);
	ldma_flow_table_destroy(table);
	return 0;
}
