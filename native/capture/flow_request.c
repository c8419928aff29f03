/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/flow_track.h"

#include <stdlib.h>
#include <string.h>

void track_clear(uint8_t ring[TRACK_RING], uint32_t top, uint32_t from, uint32_t to, uint8_t bits)
{
	if (psn_diff(top, from) > TRACK_RING)
		from = (top - TRACK_RING) & 0xffffff;
	if (psn_diff(to, top) > 0)
		to = top;
	for (int32_t n = psn_diff(to, from); n > 0; n--, from++)
		ring[from % TRACK_RING] &= (uint8_t)~bits;
}

/* Makes room in the ring for the PSNs [high, high + n). */
static void advance(struct ldma_flow_track *track, uint32_t n)
{
	uint32_t clear = n < TRACK_RING ? n : TRACK_RING;

	for (uint32_t i = 0; i < clear; i++)
		track->request[(track->high + i) % TRACK_RING] = 0;
	track->high = psn_add(track->high, n);
}

static void begin(struct ldma_flow_track *track, uint32_t psn)
{
	memset(track, 0, sizeof(*track));
	track->first = track->high = track->next = track->acked = track->sent_low =
		track->answered = psn;
	track->pass_count = 1;
	track->passes[0] = (struct track_pass){.position = psn, .end = psn};
}

static struct ldma_flow_track *track_of(struct ldma_flow *flow, uint32_t psn)
{
	if (!flow->track && (flow->track = malloc(sizeof(*flow->track))))
		begin(flow->track, psn);
	return flow->track;
}

/* Returns how many responses a READ of `bytes` has (IBA 9.7.4.2); 0 if the MTU is not known and matters. */
static uint32_t response_count(uint32_t bytes, uint32_t mtu)
{
	if (bytes <= 256)
		return 1;
	return mtu ? (bytes - 1) / mtu + 1 : 0;
}

/* Takes note that the missing PSNs [psn, psn + n) belong to one request. */
static void absorb(struct ldma_flow *flow, uint32_t psn, uint32_t n)
{
	for (uint32_t i = 0; i < n && i < TRACK_RING; i++) {
		uint8_t *at = track_request_at(flow->track, psn_add(psn, i));

		if (at && *at & REQUEST_MISSING)
			flow->missing--;
		else if (at && *at & REQUEST_NEVER_SEEN)
			flow->lost[LDMA_OP_UNKNOWN]--;
		if (at)
			*at &= (uint8_t)~(REQUEST_MISSING | REQUEST_NEVER_SEEN);
	}
}

void track_open_read(struct ldma_flow *flow, uint32_t psn)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t n = 0;

	if (flow->mtu)
		n = response_count(track->open_bytes, flow->mtu);
	for (uint32_t mtu = 256; !n && mtu <= 4096; mtu *= 2)
		if (psn_add(track->open_psn, response_count(track->open_bytes, mtu)) == psn)
			n = response_count(track->open_bytes, mtu);
	if (!n)
		return;
	track->open_bytes = 0;
	absorb(flow, psn_add(track->open_psn, 1), n - 1);
	for (uint32_t i = track->read_count; i-- > 0;) {
		struct track_read *read = &track->reads[(track->read_first + i) % TRACK_READS];

		if (read->start == track->open_psn)
			read->count = n & 0xffffff;
	}
	if (track->next == psn_add(track->open_psn, 1)) {
		track->next = psn_add(track->next, n - 1);
		track->passes[track->pass_count - 1].end = track->next;
	}
	if (psn_diff(track->next, track->high) > 0)
		advance(track, (uint32_t)psn_diff(track->next, track->high));
}

static void remember_read(struct ldma_flow_track *track, uint32_t psn, uint32_t count,
			  uint8_t operation)
{
	bool is_again = psn_diff(psn, track->high) < 0;
	struct track_read *last;

	while (track->read_count) {
		last = &track->reads[(track->read_first + track->read_count - 1u) % TRACK_READS];
		if (psn_diff(psn, last->start) > 0) {
			if (psn_diff(psn_add(last->start, last->count), psn) > 0)
				last->count = (uint32_t)psn_diff(psn, last->start) & 0xffffff;
			break;
		}
		track->read_count--;
	}
	if (track->read_count == TRACK_READS) {
		track->read_first = (track->read_first + 1) % TRACK_READS;
		track->read_count--;
	}
	track->reads[(track->read_first + track->read_count++) % TRACK_READS] =
		(struct track_read){.start = psn,
				    .count = count & 0xffffff,
				    .operation = operation & 15u,
				    .is_again = is_again};
}

/* Returns whether psn is that of a response of a READ after its first one. */
static bool is_inside_read(const struct ldma_flow_track *track, uint32_t psn)
{
	for (uint32_t i = track->read_count; i-- > 0;) {
		struct track_read read = track->reads[(track->read_first + i) % TRACK_READS];

		if (psn_diff(psn, read.start) > 0)
			return psn_diff(psn_add(read.start, read.count), psn) > 0;
	}
	return false;
}

/* Marks the skipped PSNs [from, to) as missing: most likely they were sent, and lost on the way to the capture or
 * missed by it. */
static void mark_missing(struct ldma_flow *flow, uint32_t from, uint32_t to, uint8_t bits)
{
	struct ldma_flow_track *track = flow->track;
	uint8_t *at;

	for (; psn_diff(to, from) > 0; from = psn_add(from, 1)) {
		at = track_request_at(track, from);
		if (!at || *at & REQUEST_MISSING)
			continue;
		/* Sent before, but not by itself: part of a READ. */
		if (!*at && !(bits & REQUEST_NEVER_SEEN))
			continue;
		*at |= bits;
		flow->missing++;
	}
}

/* Takes note that a repetition leaves out the requests up to psn. Only an acknowledgement of what arrived allows that.
 * A skipped request that is answered with data was lost if the requester comes back to it. */
static void skip(struct ldma_flow *flow, uint32_t psn)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t from = track->next;

	for (uint32_t p = from; psn_diff(psn, p) > 0; p = psn_add(p, 1)) {
		uint8_t *at = track_request_at(track, p);

		if (at && track_is_data(*at & REQUEST_OPERATION))
			*at |= REQUEST_UNANSWERED;
	}
	if (psn_diff(from, track->acked) < 0)
		from = track->acked;
	mark_missing(flow, from, psn, REQUEST_MISSING);
}

/* Takes a missing PSN that is captured now: it had been lost, together with the others of the same request. Returns
 * whether this is the first time that it is seen. */
static bool fill(struct ldma_flow *flow, uint32_t psn, uint32_t count, uint8_t operation)
{
	struct ldma_flow_track *track = flow->track;
	uint8_t *at = track_request_at(track, psn);
	bool is_new;

	if (!at || !(*at & (REQUEST_MISSING | REQUEST_NEVER_SEEN)))
		return false;
	is_new = *at & REQUEST_NEVER_SEEN;
	flow->lost[operation]++;
	absorb(flow, psn, count);
	return is_new;
}

/* Takes the requester's step back to psn. If nothing in the capture asked for that, something was lost. */
static void step_back(struct ldma_flow *flow, const struct ldma_packet *packet, uint8_t operation,
		      uint32_t count)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t psn = packet->psn, lost = 0;
	uint8_t *at = track_request_at(track, psn);
	uint64_t crossed = flow->crossed;
	bool is_unasked = false;

	if (!(track->is_nak_pending || track->is_rnr_pending) || psn_diff(psn, track->nak_psn) < 0)
		is_unasked = true;
	else if (psn_diff(psn, track->acked) > 0)
		mark_missing(flow, track->nak_psn, psn, REQUEST_MISSING);

	if (track->is_acked && psn_diff(psn, track->acked) < 0)
		lost = track_lost_responses(flow, psn, track_is_data(operation), packet->time_ns);
	if (flow->crossed != crossed) {
		track->is_back_unclear = false;
	} else if (!lost && is_unasked && operation == LDMA_OP_READ && is_inside_read(track, psn)) {
		/* The rest of a READ: its responses so far arrived, the next did not reach the capture. */
		lost = 1;
		flow->lost[LDMA_OP_READ_RESPONSE]++;
		track->is_back_unclear = false;
	} else if (!lost && is_unasked &&
		   (at ? *at & (REQUEST_SENT | REQUEST_UNANSWERED)
		       : psn_diff(track->high, psn) > TRACK_RING)) {
		lost = 1;
		flow->lost[operation]++;
		/* Of several responses one would have been captured. */
		track->is_back_unclear = !(operation == LDMA_OP_READ && count > 1);
		flow->lost_unclear += track->is_back_unclear;
	} else {
		track->is_back_unclear = false;
	}
	if (lost && is_unasked) {
		track->wait_ns =
			packet->time_ns > track->last_ns ? packet->time_ns - track->last_ns : 0;
		flow->timeouts++;
		if (track->wait_ns > flow->timeout_ns)
			flow->timeout_ns = track->wait_ns;
		track->attempts = psn == track->back && track->attempts ? track->attempts + 1 : 2;
		track->back = psn;
		track->back_ns = packet->time_ns;
		track->back_high = track->high;
		if (track->attempts > flow->attempts)
			flow->attempts = track->attempts;
	}
	track->is_nak_pending = track->is_rnr_pending = false;
	track->back_operation = operation;

	track_clear(track->request, track->high, psn, track->high, REQUEST_SENT);
	track_clear(track->response, track->answered, psn, track->answered,
		    RESPONSE_SENT | RESPONSE_ACKS | RESPONSE_MISSING);
	track_pass_begin(track, psn);
	/* Karn's rule: what is sent twice is not measured. */
	while (track->rtt_count &&
	       psn_diff(track->rtts[(track->rtt_first + track->rtt_count - 1u) % TRACK_RTTS].psn,
			psn) >= 0)
		track->rtt_count--;
}

static void count_message(struct ldma_flow *flow, const struct ldma_packet *packet,
			  const struct ldma_opcode_info *info)
{
	if (info->role & LDMA_ROLE_LAST)
		flow->messages[info->operation]++;
	if (info->role & LDMA_ROLE_PAYLOAD)
		flow->payload_bytes[info->operation] += packet->payload_length;
}

static void first_transmission(struct ldma_flow *flow, const struct ldma_packet *packet,
			       const struct ldma_opcode_info *info, uint32_t count)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t psn = packet->psn, high = track->high;

	if (track->next != high)
		skip(flow, high);
	if (psn != high) {
		advance(track, (uint32_t)psn_diff(psn, high));
		mark_missing(flow, high, psn, REQUEST_MISSING | REQUEST_NEVER_SEEN);
	}
	advance(track, count ? count : 1);
	count_message(flow, packet, info);
	if ((packet->ack_req || info->role & LDMA_ROLE_LAST) && track->rtt_count < TRACK_RTTS)
		track->rtts[(track->rtt_first + track->rtt_count++) % TRACK_RTTS] =
			(struct track_rtt){.psn = psn, .sent_ns = packet->time_ns};
}

static void another_transmission(struct ldma_flow *flow, const struct ldma_packet *packet,
				 const struct ldma_opcode_info *info, uint32_t count)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t psn = packet->psn;
	uint8_t *at = track_request_at(track, psn);
	/* Sent before the capture began? */
	bool is_new = at && !*at && psn_diff(psn, track->first) < 0 && !is_inside_read(track, psn);

	flow->retransmitted++;
	if (track->is_acked && psn_diff(psn, track->acked) < 0)
		flow->duplicates++;
	if (psn_diff(psn, track->next) < 0) {
		step_back(flow, packet, info->operation, count);
	} else if (psn != track->next) {
		skip(flow, psn);
	}
	if (fill(flow, psn, count ? count : 1, info->operation) || is_new)
		count_message(flow, packet, info);
}

bool track_request(struct ldma_flow *flow, const struct ldma_packet *packet)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	uint32_t psn = packet->psn, count = 1;
	struct ldma_flow_track *track = track_of(flow, psn);
	int32_t ahead;
	uint8_t *at;

	if (!track)
		return false;
	ahead = psn_diff(psn, track->high);
	if (ahead > TRACK_FAR || ahead < -TRACK_FAR) {
		if (track->open_bytes)
			track_open_read(flow, psn);
		ahead = psn_diff(psn, track->high);
	}
	if (ahead > TRACK_FAR || (ahead < -TRACK_FAR && psn_diff(psn, track->acked) < -TRACK_FAR)) {
		begin(track, psn);
		flow->restarts++;
	}
	if (track->open_bytes && psn != track->open_psn)
		track_open_read(flow, psn);
	if (info->operation == LDMA_OP_READ)
		count = packet->headers & LDMA_HAS_RETH
				? response_count(packet->dma_length, flow->mtu)
				: 1;

	if (psn_diff(psn, track->high) >= 0) {
		if (track_is_data(info->operation))
			remember_read(track, psn, count ? count : 1, info->operation);
		first_transmission(flow, packet, info, count);
	} else {
		another_transmission(flow, packet, info, count);
		if (track_is_data(info->operation))
			remember_read(track, psn, count ? count : 1, info->operation);
	}
	if (!count) {
		track->open_psn = psn;
		track->open_bytes = packet->dma_length;
	}
	at = track_request_at(track, psn);
	if (at)
		*at = REQUEST_SENT | info->operation;
	if (psn_diff(psn, track->sent_low) < 0)
		track->sent_low = psn;
	track->next = psn_add(psn, count ? count : 1);
	if (psn_diff(track->next, track->high) > 0)
		advance(track, (uint32_t)psn_diff(track->next, track->high));
	track->passes[track->pass_count - 1].end = track->next;
	track->last_ns = packet->time_ns;
	if (psn == track->nak_psn)
		track->is_nak_pending = track->is_rnr_pending = false;
	return true;
}

bool track_unreliable(struct ldma_flow *flow, const struct ldma_packet *packet)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	uint32_t psn = packet->psn, high;
	struct ldma_flow_track *track = track_of(flow, psn);
	int32_t ahead;
	uint8_t *at;

	if (!track)
		return false;
	ahead = psn_diff(psn, track->high);
	if (ahead > TRACK_FAR || ahead < -TRACK_FAR) {
		begin(track, psn);
		flow->restarts++;
		ahead = 0;
	}
	if (ahead >= 0) {
		high = track->high;
		advance(track, (uint32_t)ahead);
		mark_missing(flow, high, psn, REQUEST_MISSING | REQUEST_NEVER_SEEN);
		if (ahead > TRACK_RING)
			flow->missing += (uint32_t)ahead - TRACK_RING;
		advance(track, 1);
	} else {
		at = track_request_at(track, psn);
		if (!at || !(*at & REQUEST_MISSING)) {
			flow->duplicates++;
			return true;
		}
		*at = 0; /* late, not lost */
		flow->missing--;
	}
	count_message(flow, packet, info);
	return true;
}

void track_settle(struct ldma_flow *flow, uint64_t now_ns)
{
	struct ldma_flow_track *track = flow->track;
	bool is_over;

	flow->is_unanswered = flow->is_rnr_pending = flow->is_lost_at_end = false;
	if (!track)
		return;
	flow->open_operation = track->back_operation;
	flow->is_rnr_pending = track->is_rnr_pending;
	flow->is_unanswered = track->attempts > 0 && !track->is_nak_pending &&
			      !track->is_rnr_pending && psn_diff(track->back, track->acked) >= 0;
	is_over = flow->is_closed ||
		  (now_ns > track->last_ns && now_ns - track->last_ns > track->wait_ns);
	flow->is_lost_at_end = flow->is_unanswered && is_over;
}
