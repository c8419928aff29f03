/* SPDX-License-Identifier: BSD-2-Clause */
/* The analysis of a stream of decoded packets per connection: what was sent, lost, sent again and refused. The caller
 * hands each packet to a table, in the order of the capture, and reads the table's halves; one thread at a time uses
 * it.
 *
 * A *half* is one direction: (source, destination, destination QP, transport). The two halves of a connection are
 * joined through the REQ and REP of the connection manager if they were captured, else because the PSN of a response
 * in one half is that of a request in the other. Requests of a half and responses in its peer share a PSN space, so
 * all counts about the fate of requests, and of their responses, are in the half that carries the requests.
 *
 * A packet of which the capture proves that it did not arrive counts as lost, once:
 * - a NAK for a PSN sequence error names it, and it was sent since the last NAK or RNR NAK for that PSN;
 * - its PSN is missing in the capture, and it is sent again or named by a NAK (a missing packet that is acknowledged
 *   without being sent again arrived: the capture missed it);
 * - the requester goes back to it although nothing asked for that. If a response that covers it was captured before,
 *   that response was lost; if not, the request was lost, or its response on the way to the capture.
 * A response that was captured less than two mean round trips before may still have been on its way: it crossed the
 * repetition and nothing was lost.
 * What a go-back-N sender sends again behind such a packet is not lost.
 *
 * A packet with a wrong ICRC is counted and otherwise ignored, as its receiver ignores it. Times may go backwards. Of
 * a half that was captured both coming in and going out (loopback, two interfaces) only the direction that was seen
 * first is analysed: the rest are copies. Where directions are not known, a packet that equals the one before it in its
 * half down to the ICRC, with nothing from the peer in between and sooner than the shortest timeout that IBA 9.7.6.1.3
 * allows (8 us), is a copy as well.
 */
#ifndef LDMA_FLOW_H
#define LDMA_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"

#define LDMA_FLOW_MAX 32768       /* halves; about 7 KiB each at worst */
#define LDMA_FLOW_RTT_BITS 5      /* log-linear, 32 buckets to an octave: half a bucket is 1.6 % */
#define LDMA_FLOW_RTT_UNIT_BITS 4 /* units of 16 ns; from 137 s on all count in the last bucket */
#define LDMA_FLOW_RTT_BUCKETS (30 << LDMA_FLOW_RTT_BITS)

struct ldma_flow_table;
struct ldma_flow_track;

struct ldma_flow_key {
	uint8_t src[16], dst[16];
	uint32_t dest_qp;
	uint8_t transport; /* enum ldma_transport; CNPs count in the half they are about */
	uint8_t ip_version;
};

/* One half. Counters only grow; indices of arrays are enum ldma_operation unless they say otherwise. */
struct ldma_flow {
	struct ldma_flow_key key;
	int32_t peer; /* index of the other direction, or -1 */
	bool joined_by_cm;
	uint8_t direction;  /* the direction that is analysed, enum ldma_direction */
	bool starts_inside; /* its first packet continues something that was not captured */
	bool is_closed;     /* a DREQ for its QP was captured */
	uint32_t mtu;       /* bytes of payload in a full packet, 0 if not known */
	uint64_t first_ns, last_ns;

	uint64_t packets, bytes, copies, icrc_errors, undecoded, cnps, ecn_marked;
	uint64_t requests, responses; /* packets */
	uint64_t messages[LDMA_OP_COUNT], payload_bytes[LDMA_OP_COUNT];
	uint64_t naks[32]; /* by the code in the syndrome, sent in this half */
	uint64_t rnr_naks;

	uint64_t retransmitted, duplicates;
	/* by the operation of the lost packet; UNKNOWN: never captured */
	uint64_t lost[LDMA_OP_COUNT];
	uint64_t missing;      /* PSNs missing in the capture whose fate is open */
	uint64_t not_captured; /* PSNs missing in the capture that arrived */
	uint64_t lost_unclear; /* of the lost: either the request or its response */
	uint64_t crossed;      /* steps back that crossed the response: nothing was lost */
	uint64_t recovered_by_nak, timeouts, restarts;
	uint64_t timeout_ns; /* the longest wait before a request was sent again unasked */
	uint32_t attempts;   /* the most often any one request was sent without progress */
	uint8_t fatal_nak;   /* the first syndrome that ended the connection, or 0 */

	/* the state at the end of the capture */
	bool is_unanswered;     /* the last retransmission was never answered */
	bool is_rnr_pending;    /* the last response was an RNR NAK */
	bool is_lost_at_end;    /* it is too late for an answer: lost, too, but not in `lost` */
	uint8_t open_operation; /* of the request that these are about */

	uint64_t rtt_count;
	uint32_t *rtt;                 /* LDMA_FLOW_RTT_BUCKETS, or NULL without a sample */
	struct ldma_flow_track *track; /* private, as are all below */
	uint64_t seen_ns, seen_number; /* the last packet, to tell copies */
	uint32_t seen_psn, seen_icrc;
	uint8_t seen_opcode;
};

struct ldma_flow_totals {
	uint64_t packets, bytes, errors, icrc_errors, not_tracked;
	uint64_t first_ns, last_ns;
};

/* Returns NULL without memory. */
struct ldma_flow_table *ldma_flow_table_create(void);
void ldma_flow_table_destroy(struct ldma_flow_table *table); /* accepts NULL */

/* Takes one packet. The table keeps only numbers of it. */
void ldma_flow_table_packet(struct ldma_flow_table *table, const struct ldma_packet *packet);

/* Returns a half by its index, in the order of their first packets, or NULL after the last. What it points to is
 * current until the next packet. */
const struct ldma_flow *ldma_flow_table_get(struct ldma_flow_table *table, uint32_t index);
struct ldma_flow_totals ldma_flow_table_totals(const struct ldma_flow_table *table);

/* Returns the round trip below which `per_mille` of the samples of up to two halves lie, or -1 without samples. b may
 * be NULL. */
int64_t ldma_flow_rtt_ns(const struct ldma_flow *a, const struct ldma_flow *b, uint32_t per_mille);

#endif
