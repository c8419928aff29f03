/* SPDX-License-Identifier: BSD-2-Clause */
/* Private to flow_*.c: one direction's requests and the responses to them, followed by PSN. */
#ifndef LDMA_FLOW_TRACK_H
#define LDMA_FLOW_TRACK_H

#include "capture/flow.h"

#define TRACK_RING 1024 /* PSNs remembered below the highest one */
#define TRACK_READS 64
#define TRACK_PASSES 4
#define TRACK_RTTS 64
#define TRACK_FAR 65536 /* a PSN further away than this is of another connection */

/* Bits of a request's PSN; the low four are the operation. */
enum {
	REQUEST_SENT = 0x80,       /* sent; its fate is not known yet */
	REQUEST_MISSING = 0x40,    /* most likely sent, but not captured */
	REQUEST_NEVER_SEEN = 0x20, /* no transmission was captured; without MISSING: it was lost */
	REQUEST_UNANSWERED = 0x10, /* repeated, and the responder skipped it */
	REQUEST_OPERATION = 0x0f
};

/* Bits of a response's PSN; the low ones count the acknowledgements that carried it. */
enum {
	RESPONSE_SENT = 0x80, /* data, since the last time it was asked for */
	RESPONSE_SEEN = 0x40, /* data, ever */
	RESPONSE_MISSING = 0x20,
	RESPONSE_ACKS = 0x1f
};

/* A request that is answered with data: PSNs [start, start + count). */
struct track_read {
	uint32_t start;
	uint32_t count : 24;
	uint32_t operation : 4;
	uint32_t is_again : 1;
};

/* A run of requests without a step back: the responder answers one run after the other. */
struct track_pass {
	uint32_t position, end; /* next PSN to be answered; end of the run */
};

struct track_rtt {
	uint32_t psn;
	uint64_t sent_ns;
};

struct ldma_flow_track {
	uint32_t first;     /* PSN of the first request in the capture */
	uint32_t high;      /* PSN after the highest one sent */
	uint32_t next;      /* PSN after the last one sent */
	uint32_t acked;     /* PSN after the highest one known to have been received */
	uint32_t sent_low;  /* nothing below is REQUEST_SENT */
	uint32_t answered;  /* PSN after the highest one that a response carried */
	uint32_t back;      /* PSN to which the last unasked step back went */
	uint32_t back_high; /* `high` at that time */
	uint32_t attempts;  /* unasked steps back in a row */
	uint32_t open_psn;  /* a READ whose number of responses is not known, and its length */
	uint32_t open_bytes;
	uint32_t nak_psn;                   /* PSN of the restart that was asked for */
	uint64_t last_ns;                   /* last request or new acknowledgement */
	uint64_t wait_ns;                   /* the wait before the last unasked step back */
	uint64_t back_ns;                   /* the time of that step */
	uint64_t response_ns;               /* last response */
	uint64_t rtt_mean_ns, rtt_least_ns; /* 0 without a sample; the mean follows the last ones */
	uint32_t response_psn;              /* last response */
	bool is_acked; /* acked rests on a response, not on where the capture begins */
	bool is_nak_pending, is_rnr_pending, is_back_unclear;
	uint8_t back_operation;
	uint16_t read_first, read_count;
	uint8_t pass_count;
	uint8_t rtt_first, rtt_count;
	struct track_pass passes[TRACK_PASSES]; /* oldest first */
	struct track_read reads[TRACK_READS];   /* a ring, ascending */
	struct track_rtt rtts[TRACK_RTTS];      /* a ring, ascending */
	uint8_t request[TRACK_RING];            /* PSNs [high - TRACK_RING, high) */
	uint8_t response[TRACK_RING];           /* PSNs [answered - TRACK_RING, answered) */
};

/* Returns a - b in the circle of 24-bit PSNs. */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & 0xffffff;
}

/* Takes a request packet of the half. Returns false without memory. */
bool track_request(struct ldma_flow *flow, const struct ldma_packet *packet);

/* Closes a READ that was sent before the MTU was known: what follows (the MTU, a request with psn) tells how many PSNs
 * it took. */
void track_open_read(struct ldma_flow *flow, uint32_t psn);

/* Takes a response to a request of `flow`, in the half `from`. Returns whether its PSN fits. */
bool track_response(struct ldma_flow *flow, struct ldma_flow *from,
		    const struct ldma_packet *packet);

/* Takes a packet of UC, where PSNs say what is missing and nothing is sent again. Returns false without memory. */
bool track_unreliable(struct ldma_flow *flow, const struct ldma_packet *packet);

/* Settles what the capture leaves open; now_ns is the time of the last packet of the capture. */
void track_settle(struct ldma_flow *flow, uint64_t now_ns);

/* The two sides of a track share what follows: the requester's steps, and the responder's answers. */

/* Returns the byte of a PSN, or NULL if it lies outside of what is remembered. */
static inline uint8_t *track_request_at(struct ldma_flow_track *track, uint32_t psn)
{
	int32_t below = psn_diff(track->high, psn);

	return below > 0 && below <= TRACK_RING ? &track->request[psn % TRACK_RING] : NULL;
}

static inline uint8_t *track_response_at(struct ldma_flow_track *track, uint32_t psn)
{
	int32_t below = psn_diff(track->answered, psn);

	return below > 0 && below <= TRACK_RING ? &track->response[psn % TRACK_RING] : NULL;
}

/* Returns whether requests of this kind are answered with data, not with a plain acknowledgement. */
static inline bool track_is_data(uint8_t operation)
{
	return operation == LDMA_OP_READ || operation == LDMA_OP_COMPARE_SWAP ||
	       operation == LDMA_OP_FETCH_ADD;
}

/* Clears bits of the PSNs [from, to) of either ring, as far as they are remembered. */
void track_clear(uint8_t ring[TRACK_RING], uint32_t top, uint32_t from, uint32_t to, uint8_t bits);

/* track_pass_begin notes that the responder starts over at psn; track_pass_cut, that it asked to start over at psn and
 * will not answer anything from psn on. */
void track_pass_begin(struct ldma_flow_track *track, uint32_t psn);
void track_pass_cut(struct ldma_flow_track *track, uint32_t psn);

/* Counts the responses that are proven lost because the requester went back to psn unasked. Returns how many. */
uint32_t track_lost_responses(struct ldma_flow *flow, uint32_t psn, bool is_data, uint64_t now_ns);

#endif
