#include "flow.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "flow_track.h"

#define BUCKETS (2 * LDMA_FLOW_MAX) /* a power of two, never full */
#define SIGHTS 16384                /* recent PSNs of halves that are not joined */
#define CM_PENDING 1024
#define CM_CLASS 7
#define CM_REQ 0x10
#define CM_REP 0x13
#define CM_DREQ 0x15
#define MAD_BYTES 24
#define MISFITS_MAX 4
#define JOIN_REACH 32

/* Where requests with this PSN between these hosts were seen: at most two halves, else the PSN tells nothing. */
struct sight {
	uint64_t hosts;
	uint32_t psn;
	int32_t half[2];
};

/* A REQ that waits for its REP, or a pair of QPs whose halves have not been seen yet. */
struct cm_pair {
	uint8_t active[16], passive[16];
	uint32_t comm_id, active_qp, passive_qp;
	uint8_t ip_version;
	bool is_used, is_complete;
};

struct ldma_flow_table {
	struct ldma_flow *flows[LDMA_FLOW_MAX];
	uint32_t count;
	int32_t last; /* the half of the last packet: the next one is often of the same */
	int32_t buckets[BUCKETS];
	struct sight sights[SIGHTS];
	struct cm_pair cm[CM_PENDING];
	struct ldma_flow_totals totals;
	uint8_t misfits[LDMA_FLOW_MAX], fits[LDMA_FLOW_MAX];
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
	return hash ^ (hash >> 29);
}

static uint64_t hash_hosts(const uint8_t src[16], const uint8_t dst[16])
{
	uint64_t hash = 1;

	for (int i = 0; i < 16; i += 8)
		hash = mix(mix(hash, get64(src + i)), get64(dst + i) ^ 0x5555);
	return hash;
}

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

static int32_t find(struct ldma_flow_table *table, const struct ldma_flow_key *key, uint32_t *bucket)
{
	uint64_t hash = mix(hash_hosts(key->src, key->dst), key->dest_qp | (uint64_t)key->transport << 24);
	int32_t index;

	for (*bucket = hash % BUCKETS; (index = table->buckets[*bucket]) >= 0;
	     *bucket = (*bucket + 1) % BUCKETS)
		if (key_equal(&table->flows[index]->key, key))
			return index;
	return -1;
}

/* The halves of a connection that the connection manager set up, once both are there. */
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
		a = find(table, &there, &bucket);
		b = find(table, &back, &bucket);
		if (a >= 0 && b >= 0 && table->flows[a]->peer < 0 && table->flows[b]->peer < 0)
			join(table, a, b, true);
	}
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
	if (key->transport != LDMA_TRANSPORT_UD)
		for (uint32_t i = 0; i < CM_PENDING; i++)
			if (table->cm[i].is_complete && (table->cm[i].active_qp == key->dest_qp ||
							 table->cm[i].passive_qp == key->dest_qp))
				join_cm(table, &table->cm[i]);
	return (int32_t)table->count++;
}

/* REQ, REP and DREQ (IBA 12.6.5, 12.6.8, 12.6.10) as far as they name QPs. */
static void manage(struct ldma_flow_table *table, const struct ldma_packet *packet)
{
	const uint8_t *mad = packet->frame + packet->payload_offset, *p = mad + MAD_BYTES;
	struct ldma_flow_key key = {.transport = LDMA_TRANSPORT_RC, .ip_version = packet->ip_version};
	struct cm_pair *cm;
	uint32_t bucket;
	int32_t index;

	if (mad[1] != CM_CLASS || packet->payload_captured < MAD_BYTES + 48)
		return;
	switch (packet->mad_attribute) {
	case CM_REQ:
		cm = &table->cm[get32(p) % CM_PENDING];
		memset(cm, 0, sizeof(*cm));
		memcpy(cm->active, packet->src, 16);
		memcpy(cm->passive, packet->dst, 16);
		cm->ip_version = packet->ip_version;
		cm->comm_id = get32(p);
		cm->active_qp = get24(p + 32);
		cm->is_used = true;
		break;
	case CM_REP:
		cm = &table->cm[get32(p + 4) % CM_PENDING];
		if (!cm->is_used || cm->comm_id != get32(p + 4) || memcmp(cm->active, packet->dst, 16) ||
		    memcmp(cm->passive, packet->src, 16))
			break;
		cm->passive_qp = get24(p + 12);
		cm->is_complete = true;
		join_cm(table, cm);
		break;
	case CM_DREQ:
		memcpy(key.src, packet->src, 16);
		memcpy(key.dst, packet->dst, 16);
		key.dest_qp = get24(p + 8);
		index = find(table, &key, &bucket);
		if (index < 0)
			break;
		table->flows[index]->is_closed = true;
		if (table->flows[index]->peer >= 0)
			table->flows[table->flows[index]->peer]->is_closed = true;
		break;
	}
}

/* Remembers that a half that is not joined sent a request with this PSN. */
static void sight(struct ldma_flow_table *table, int32_t index, uint32_t psn)
{
	const struct ldma_flow_key *key = &table->flows[index]->key;
	uint64_t hosts = mix(hash_hosts(key->src, key->dst), key->transport);
	struct sight *at = &table->sights[mix(hosts, psn) % SIGHTS];

	if (at->hosts != hosts || at->psn != psn) {
		*at = (struct sight){.hosts = hosts, .psn = psn, .half = {index, -1}};
		return;
	}
	for (int i = 0; i < 2; i++)
		if (at->half[i] == index || at->half[i] < 0 || table->flows[at->half[i]]->peer >= 0) {
			at->half[i] = index;
			return;
		}
}

/* Finds the half whose request this response answers, if only one comes into question. */
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
	bool is_nak = false, is_inside = !(ldma_opcodes[packet->opcode].role & LDMA_ROLE_FIRST);

	flow->responses++;
	if (packet->headers & LDMA_HAS_AETH) {
		if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_RNR_NAK) {
			flow->rnr_naks++;
		} else if (ldma_aeth_kind(packet->syndrome) == LDMA_AETH_NAK) {
			is_nak = true;
			flow->naks[packet->syndrome & 0x1f]++;
			if (packet->syndrome & 0x1f && !flow->fatal_nak)
				flow->fatal_nak = packet->syndrome;
		}
	}
	/* A NAK names a packet that may be missing here, and was provoked by one that follows it. A response in the
	 * middle of a READ belongs to a request before it. */
	for (uint32_t i = 0; flow->peer < 0 && i <= (is_nak || is_inside ? JOIN_REACH : 0); i++)
		join_by_psn(table, index, (is_nak ? packet->psn + i : packet->psn - i) & 0xffffff,
			    packet->psn);
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
		/* A coincidence, after all. */
		table->misfits[index] = table->fits[index] = 0;
		table->flows[flow->peer]->peer = -1;
		flow->peer = -1;
	}
}

static void follow(struct ldma_flow_table *table, int32_t index, const struct ldma_packet *packet)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	struct ldma_flow *flow = table->flows[index];
	bool is_reliable = info->transport == LDMA_TRANSPORT_RC || info->transport == LDMA_TRANSPORT_XRC;

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
			sight(table, index, packet->psn);
	} else if (info->transport == LDMA_TRANSPORT_UC) {
		track_unreliable(flow, packet);
	} else {
		if (info->role & LDMA_ROLE_LAST)
			flow->messages[info->operation]++;
		flow->payload_bytes[info->operation] += packet->payload_length;
		if (packet->seen & LDMA_SEEN_MAD)
			manage(table, packet);
	}
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
		index = find(table, &key, &bucket);
		/* What a corrupt packet says about its QP opens no half. */
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
	if (packet->direction && packet->direction != flow->direction) {
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
