/* SPDX-License-Identifier: BSD-2-Clause */
/* Private to flow_*.c: the table of halves, and how two of them are joined. */
#ifndef LDMA_FLOW_TABLE_H
#define LDMA_FLOW_TABLE_H

#include "base/bytes.h"
#include "capture/flow_track.h"

#define BUCKETS (2 * LDMA_FLOW_MAX) /* a power of two, never full */
#define SIGHTS 16384                /* recent PSNs of halves that are not joined */
#define CM_PENDING 1024

/* The halves in which requests with this PSN between these hosts were seen: at most two, else the PSN tells nothing. */
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
	int32_t last; /* the half of the last packet: the next packet is often of the same half */
	int32_t buckets[BUCKETS];
	struct sight sights[SIGHTS];
	struct cm_pair cm[CM_PENDING];
	struct ldma_flow_totals totals;
	uint8_t misfits[LDMA_FLOW_MAX], fits[LDMA_FLOW_MAX];
};

static inline uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
	return hash ^ (hash >> 29);
}

static inline uint64_t hash_hosts(const uint8_t src[16], const uint8_t dst[16])
{
	uint64_t hash = 1;

	for (int i = 0; i < 16; i += 8)
		hash = mix(mix(hash, get64(src + i)), get64(dst + i) ^ 0x5555);
	return hash;
}

/* Returns the index of a half, or -1; then *bucket is where it would go. */
int32_t flow_find(const struct ldma_flow_table *table, const struct ldma_flow_key *key,
		  uint32_t *bucket);

/* Takes a management datagram: those of REQ, REP and DREQ name QPs. */
void flow_manage(struct ldma_flow_table *table, const struct ldma_packet *packet);

/* Joins a half towards this QP, which has been added, if the connection manager named it before. */
void flow_join_managed(struct ldma_flow_table *table, uint32_t qp);

/* Remembers that a half that is not joined sent a request with this PSN. */
void flow_sight(struct ldma_flow_table *table, int32_t index, uint32_t psn);

/* Joins a half to the half whose request this response answers, if only one is possible. */
void flow_join_by_psn(struct ldma_flow_table *table, int32_t index,
		      const struct ldma_packet *response);

#endif
