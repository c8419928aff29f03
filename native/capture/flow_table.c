/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/flow.h"

#include <stdlib.h>
#include <string.h>

#include "capture/flow_table.h"

#define MISFITS_MAX 4
#define COPY_NS 8192

struct ldma_flow_table *ldma_flow_table_create(void)
{
	struct ldma_flow_table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	memset(table->buckets, 0xff, sizeof(table->buckets));
	table->last = -1;
	return table;
}

void ldma_flow_table_destroy(struct ldma_flow_table *table)
{
	if (!table)
		return;
	for (uint32_t i = 0; i < table->count; i++) {
		free(table->flows[i]->track);
		free(table->flows[i]->rtt);
		free(table->flows[i]);
	}
	free(table);
}

static bool key_equal(const struct ldma_flow_key *a, const struct ldma_flow_key *b)
{
	return a->dest_qp == b->dest_qp && a->transport == b->transport &&
	       a->ip_version == b->ip_version && !memcmp(a->src, b->src, 32);
}

_Static_assert(offsetof(struct ldma_flow_key, dst) == 16, "src and dst are compared as one");

int32_t flow_find(const struct ldma_flow_table *table, const struct ldma_flow_key *key,
		  uint32_t *bucket)
{
	uint64_t hash =
		mix(hash_hosts(key->src, key->dst), key->dest_qp | (uint64_t)key->transport << 24);
	int32_t index;

	for (*bucket = hash % BUCKETS; (index = table->buckets[*bucket]) >= 0;
	     *bucket = (*bucket + 1) % BUCKETS)
		if (key_equal(&table->flows[index]->key, key))
			return index;
	return -1;
}

static int32_t add(struct ldma_flow_table *table, const struct ldma_flow_key *key, uint32_t bucket)
{
	struct ldma_flow *flow;

	if (table->count == LDMA_FLOW_MAX)
		return -1;
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return -1;
	flow->key = *key;
	flow->peer = -1;
	table->flows[table->count] = flow;
	table->buckets[bucket] = (int32_t)table->count;
	table->count++;
	if (key->transport != LDMA_TRANSPORT_UD)
		flow_join_managed(table, key->dest_qp);
	return (int32_t)table->count - 1;
}

static void learn_mtu(struct ldma_flow_table *table, struct ldma_flow *flow,
		      const struct ldma_packet *packet, uint8_t role)
{
	uint32_t n = packet->payload_length;

	if (flow->mtu || !(role & LDMA_ROLE_PAYLOAD) || role & LDMA_ROLE_LAST || n < 256 ||
	    n > 4096 || n & (n - 1))
		return;
	flow->mtu = n;
	if (flow->peer >= 0)
		table->flows[flow->peer]->mtu = n;
}

static void follow_response(struct ldma_flow_table *table, int32_t index,
			    const struct ldma_packet *packet)
{
	struct ldma_flow *flow = table->flows[index];

	flow->responses++;
	if (packet->headers & LDMA_HAS_AETH) {
		if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_RNR_NAK) {
			flow->rnr_naks++;
		} else if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_NAK) {
			flow->naks[packet->syndrome & 0x1f]++;
			if (packet->syndrome & 0x1f && !flow->fatal_nak)
				flow->fatal_nak = packet->syndrome;
		}
	}
	if (flow->peer < 0)
		flow_join_by_psn(table, index, packet);
	if (flow->peer < 0) {
		if (packet->seen & LDMA_SEEN_PAYLOAD &&
		    ldma_opcodes[packet->opcode].operation == LDMA_OP_READ_RESPONSE)
			flow->payload_bytes[LDMA_OP_READ] += packet->payload_length;
		return;
	}
	if (track_response(table->flows[flow->peer], flow, packet)) {
		if (table->fits[index] < 255)
			table->fits[index]++;
	} else if (!flow->joined_by_cm && ++table->misfits[index] >= MISFITS_MAX &&
		   table->fits[index] <= MISFITS_MAX) {
		/* The PSNs agreed by coincidence. */
		table->misfits[index] = table->fits[index] = 0;
		table->flows[flow->peer]->peer = -1;
		flow->peer = -1;
	}
}

static void follow(struct ldma_flow_table *table, int32_t index, const struct ldma_packet *packet)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	struct ldma_flow *flow = table->flows[index];
	bool is_reliable =
		info->transport == LDMA_TRANSPORT_RC || info->transport == LDMA_TRANSPORT_XRC;

	if (is_reliable)
		learn_mtu(table, flow, packet, info->role);
	if (info->role & LDMA_ROLE_RESPONSE) {
		follow_response(table, index, packet);
		if (flow->packets == 1)
			flow->starts_inside = flow->peer < 0;
		return;
	}
	flow->requests++;
	if (flow->packets == 1)
		flow->starts_inside = !(info->role & LDMA_ROLE_FIRST);
	if (is_reliable) {
		track_request(flow, packet);
		if (flow->peer < 0)
			flow_sight(table, index, packet->psn);
	} else if (info->transport == LDMA_TRANSPORT_UC) {
		track_unreliable(flow, packet);
	} else {
		if (info->role & LDMA_ROLE_LAST)
			flow->messages[info->operation]++;
		flow->payload_bytes[info->operation] += packet->payload_length;
		if (packet->seen & LDMA_SEEN_MAD)
			flow_manage(table, packet);
	}
}

/* Returns whether the packet is the last one of its half once more, captured elsewhere. Remembers it if not. */
static bool is_copy(struct ldma_flow_table *table, struct ldma_flow *flow,
		    const struct ldma_packet *packet)
{
	const struct ldma_flow *peer = flow->peer >= 0 ? table->flows[flow->peer] : NULL;

	if (packet->direction && packet->direction != flow->direction)
		return true;
	if (flow->packets && packet->seen & LDMA_SEEN_ICRC && packet->icrc == flow->seen_icrc &&
	    packet->psn == flow->seen_psn && packet->opcode == flow->seen_opcode &&
	    packet->time_ns - flow->seen_ns < COPY_NS &&
	    !(peer && peer->seen_number > flow->seen_number))
		return true;
	flow->seen_ns = packet->time_ns;
	flow->seen_number = table->totals.packets;
	flow->seen_psn = packet->psn;
	flow->seen_icrc = packet->icrc;
	flow->seen_opcode = packet->opcode;
	return false;
}

static void count(struct ldma_flow *flow, const struct ldma_packet *packet)
{
	if (!flow->packets || packet->time_ns < flow->first_ns)
		flow->first_ns = packet->time_ns;
	if (packet->time_ns > flow->last_ns)
		flow->last_ns = packet->time_ns;
	flow->packets++;
	flow->bytes += packet->length;
	flow->ecn_marked += (packet->tos & 3) == 3;
}

void ldma_flow_table_packet(struct ldma_flow_table *table, const struct ldma_packet *packet)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	bool is_bad = packet->icrc_state == LDMA_ICRC_BAD;
	struct ldma_flow_key key = {.dest_qp = packet->dest_qp, .ip_version = packet->ip_version};
	struct ldma_flow *flow;
	uint32_t bucket;
	int32_t index;

	if (!table->totals.packets || packet->time_ns < table->totals.first_ns)
		table->totals.first_ns = packet->time_ns;
	if (packet->time_ns > table->totals.last_ns)
		table->totals.last_ns = packet->time_ns;
	table->totals.packets++;
	table->totals.bytes += packet->length;
	table->totals.errors += packet->error && packet->error != LDMA_PACKET_CAPTURE;
	table->totals.icrc_errors += is_bad;
	if (!(packet->seen & LDMA_SEEN_BTH)) {
		table->totals.not_tracked++;
		return;
	}
	key.transport = packet->opcode == LDMA_OPCODE_CNP ? LDMA_TRANSPORT_RC : packet->opcode >> 5;
	if (key.transport == LDMA_TRANSPORT_CNP || key.transport > LDMA_TRANSPORT_XRC)
		key.transport = LDMA_TRANSPORT_CNP;
	memcpy(key.src, packet->src, 16);
	memcpy(key.dst, packet->dst, 16);
	index = table->last;
	if (index < 0 || !key_equal(&table->flows[index]->key, &key)) {
		index = flow_find(table, &key, &bucket);
		/* A corrupt packet opens no half: its QP may be wrong. */
		if (index < 0 && !is_bad)
			index = add(table, &key, bucket);
		if (index < 0) {
			table->totals.not_tracked++;
			return;
		}
		table->last = index;
	}
	flow = table->flows[index];
	if (!flow->direction)
		flow->direction = packet->direction;
	if (is_copy(table, flow, packet)) {
		flow->copies++;
		return;
	}
	count(flow, packet);
	if (is_bad)
		flow->icrc_errors++;
	else if (!info->name || !(packet->seen & LDMA_SEEN_PAYLOAD))
		flow->undecoded++;
	else if (info->operation == LDMA_OP_CNP)
		flow->cnps++;
	else
		follow(table, index, packet);
}

const struct ldma_flow *ldma_flow_table_get(struct ldma_flow_table *table, uint32_t index)
{
	if (index >= table->count)
		return NULL;
	track_settle(table->flows[index], table->totals.last_ns);
	return table->flows[index];
}

struct ldma_flow_totals ldma_flow_table_totals(const struct ldma_flow_table *table)
{
	return table->totals;
}
