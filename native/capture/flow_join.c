/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "capture/flow_table.h"
#include "wire/cm.h"

#define MAD_BYTES 24
#define JOIN_REACH 32

static void join(struct ldma_flow_table *table, int32_t a, int32_t b, bool is_by_cm)
{
	struct ldma_flow *x = table->flows[a], *y = table->flows[b];

	x->peer = b;
	y->peer = a;
	x->joined_by_cm = y->joined_by_cm = is_by_cm;
	if (!x->mtu)
		x->mtu = y->mtu;
	y->mtu = x->mtu;
}

/* Joins the halves of a connection that the connection manager set up, once both are there. */
static void join_cm(struct ldma_flow_table *table, const struct cm_pair *cm)
{
	struct ldma_flow_key there = {.dest_qp = cm->passive_qp, .ip_version = cm->ip_version};
	struct ldma_flow_key back = {.dest_qp = cm->active_qp, .ip_version = cm->ip_version};
	uint32_t bucket;
	int32_t a, b;

	memcpy(there.src, cm->active, 16);
	memcpy(there.dst, cm->passive, 16);
	memcpy(back.src, cm->passive, 16);
	memcpy(back.dst, cm->active, 16);
	for (there.transport = 0; there.transport <= LDMA_TRANSPORT_XRC; there.transport++) {
		back.transport = there.transport;
		a = flow_find(table, &there, &bucket);
		b = flow_find(table, &back, &bucket);
		if (a >= 0 && b >= 0 && table->flows[a]->peer < 0 && table->flows[b]->peer < 0)
			join(table, a, b, true);
	}
}

void flow_join_managed(struct ldma_flow_table *table, uint32_t qp)
{
	for (uint32_t i = 0; i < CM_PENDING; i++)
		if (table->cm[i].is_complete &&
		    (table->cm[i].active_qp == qp || table->cm[i].passive_qp == qp))
			join_cm(table, &table->cm[i]);
}

/* Takes from REQ, REP and DREQ (IBA 12.6.5, 12.6.8, 12.6.10) the QPs that they name. */
void flow_manage(struct ldma_flow_table *table, const struct ldma_packet *packet)
{
	const uint8_t *mad = packet->frame + packet->payload_offset, *p = mad + MAD_BYTES;
	struct ldma_flow_key key = {.transport = LDMA_TRANSPORT_RC,
				    .ip_version = packet->ip_version};
	struct cm_pair *cm;
	uint32_t bucket;
	int32_t index;

	if (mad[1] != LDMA_CM_CLASS || packet->payload_captured < MAD_BYTES + 48)
		return;
	switch (packet->mad_attribute) {
	case LDMA_CM_REQ:
		cm = &table->cm[get32(p) % CM_PENDING];
		memset(cm, 0, sizeof(*cm));
		memcpy(cm->active, packet->src, 16);
		memcpy(cm->passive, packet->dst, 16);
		cm->ip_version = packet->ip_version;
		cm->comm_id = get32(p);
		cm->active_qp = get24(p + 32);
		cm->is_used = true;
		break;
	case LDMA_CM_REP:
		cm = &table->cm[get32(p + 4) % CM_PENDING];
		if (!cm->is_used || cm->comm_id != get32(p + 4) ||
		    memcmp(cm->active, packet->dst, 16) || memcmp(cm->passive, packet->src, 16))
			break;
		cm->passive_qp = get24(p + 12);
		cm->is_complete = true;
		join_cm(table, cm);
		break;
	case LDMA_CM_DREQ:
		memcpy(key.src, packet->src, 16);
		memcpy(key.dst, packet->dst, 16);
		key.dest_qp = get24(p + 8);
		index = flow_find(table, &key, &bucket);
		if (index < 0)
			break;
		table->flows[index]->is_closed = true;
		if (table->flows[index]->peer >= 0)
			table->flows[table->flows[index]->peer]->is_closed = true;
		break;
	}
}

void flow_sight(struct ldma_flow_table *table, int32_t index, uint32_t psn)
{
	const struct ldma_flow_key *key = &table->flows[index]->key;
	uint64_t hosts = mix(hash_hosts(key->src, key->dst), key->transport);
	struct sight *at = &table->sights[mix(hosts, psn) % SIGHTS];

	if (at->hosts != hosts || at->psn != psn) {
		*at = (struct sight){.hosts = hosts, .psn = psn, .half = {index, -1}};
		return;
	}
	for (int i = 0; i < 2; i++)
		if (at->half[i] == index || at->half[i] < 0 ||
		    table->flows[at->half[i]]->peer >= 0) {
			at->half[i] = index;
			return;
		}
}

static void join_by_psn(struct ldma_flow_table *table, int32_t index, uint32_t psn,
			uint32_t response_psn)
{
	const struct ldma_flow_key *key = &table->flows[index]->key;
	uint64_t hosts = mix(hash_hosts(key->dst, key->src), key->transport);
	const struct sight *at = &table->sights[mix(hosts, psn) % SIGHTS];
	const struct ldma_flow_track *track;
	int32_t found = -1;

	if (at->hosts != hosts || at->psn != psn)
		return;
	for (int i = 0; i < 2; i++) {
		if (at->half[i] < 0 || at->half[i] == found || table->flows[at->half[i]]->peer >= 0)
			continue;
		track = table->flows[at->half[i]]->track;
		if (!track || (psn_diff(response_psn, track->high) >= 0 && !track->open_bytes))
			continue;
		if (found >= 0)
			return;
		found = at->half[i];
	}
	if (found >= 0 && found != index)
		join(table, found, index, false);
}

void flow_join_by_psn(struct ldma_flow_table *table, int32_t index,
		      const struct ldma_packet *response)
{
	bool is_nak = response->headers & LDMA_HAS_AETH &&
		      ldma_aeth_kind(response->syndrome) == LDMA_AETH_NAK;
	bool is_inside = !(ldma_opcodes[response->opcode].role & LDMA_ROLE_FIRST);

	/* A NAK names a packet that may be missing here, and was provoked by a packet after it. A response in the
	 * middle of a READ belongs to a request before it. */
	for (uint32_t i = 0; i <= (is_nak || is_inside ? JOIN_REACH : 0); i++) {
		join_by_psn(table, index,
			    (is_nak ? response->psn + i : response->psn - i) & 0xffffff,
			    response->psn);
		if (table->flows[index]->peer >= 0)
			return;
	}
}
