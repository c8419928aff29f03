/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/flow_track.h"

#include <stdlib.h>

#include "base/log_linear.h"

void track_pass_begin(struct ldma_flow_track *track, uint32_t psn)
{
	if (track->pass_count == TRACK_PASSES) {
		for (int i = 1; i < TRACK_PASSES; i++)
			track->passes[i - 1] = track->passes[i];
		track->pass_count--;
	}
	track->passes[track->pass_count++] = (struct track_pass){.position = psn, .end = psn};
}

void track_pass_cut(struct ldma_flow_track *track, uint32_t psn)
{
	for (int i = 0; i < track->pass_count; i++)
		if (psn_diff(track->passes[i].end, psn) > 0)
			track->passes[i].end = psn;
}

uint32_t track_lost_responses(struct ldma_flow *flow, uint32_t psn, bool is_data, uint64_t now_ns)
{
	struct ldma_flow_track *track = flow->track;
	uint8_t *at = track_response_at(track, psn);
	uint32_t acks = 0, missing = 0, data = 0;

	/* Any acknowledgement of psn or of what follows would have made the repetition needless, unless the request
	 * waits for data. Missing data was lost on the way to the capture. */
	if (psn_diff(track->answered, psn) > TRACK_RING)
		data = is_data;
	else if (is_data && at && *at & RESPONSE_SENT)
		data = 1;
	for (uint32_t p = psn; psn_diff(track->answered, p) > 0; p = psn_add(p, 1)) {
		at = track_response_at(track, p);
		if (!at)
			continue;
		if (!is_data)
			acks += *at & RESPONSE_ACKS;
		missing += !!(*at & RESPONSE_MISSING);
	}
	/* A requester that sees a later response knows that this one is lost; without one it has to wait long
	 * enough. */
	if ((acks || (data && psn_diff(track->response_psn, psn) <= 0)) && !missing &&
	    now_ns < track->response_ns + 2 * track->rtt_mean_ns) {
		flow->crossed++;
		return 0;
	}
	at = track_request_at(track, psn);
	if (is_data && at && (*at & REQUEST_OPERATION) && (*at & REQUEST_OPERATION) != LDMA_OP_READ)
		flow->lost[LDMA_OP_ATOMIC_ACK] += data;
	else
		flow->lost[LDMA_OP_READ_RESPONSE] += data;
	flow->lost[LDMA_OP_READ_RESPONSE] += missing;
	flow->lost[LDMA_OP_ACK] += acks;
	return data + missing + acks;
}

static uint32_t rtt_bucket(uint64_t ns)
{
	uint64_t units = ns >> LDMA_FLOW_RTT_UNIT_BITS;

	return units >> 33 ? LDMA_FLOW_RTT_BUCKETS - 1
			   : ldma_log_linear_bucket(units, LDMA_FLOW_RTT_BITS);
}

static int64_t rtt_bucket_ns(uint32_t bucket)
{
	return (int64_t)ldma_log_linear_middle_ns(bucket, LDMA_FLOW_RTT_BITS,
						  LDMA_FLOW_RTT_UNIT_BITS);
}

int64_t ldma_flow_rtt_ns(const struct ldma_flow *a, const struct ldma_flow *b, uint32_t per_mille)
{
	uint64_t count = a->rtt_count + (b ? b->rtt_count : 0), below = 0, rank;

	if (!count)
		return -1;
	rank = (count * per_mille + 999) / 1000;
	for (uint32_t i = 0; i < LDMA_FLOW_RTT_BUCKETS; i++) {
		below += (a->rtt ? a->rtt[i] : 0) + (uint64_t)(b && b->rtt ? b->rtt[i] : 0);
		if (below >= rank && below)
			return rtt_bucket_ns(i);
	}
	return rtt_bucket_ns(LDMA_FLOW_RTT_BUCKETS - 1);
}

static void sample(struct ldma_flow *flow, uint64_t ns)
{
	struct ldma_flow_track *track = flow->track;

	if (!flow->rtt)
		flow->rtt = calloc(LDMA_FLOW_RTT_BUCKETS, sizeof(*flow->rtt));
	if (!flow->rtt)
		return;
	flow->rtt[rtt_bucket(ns)]++;
	flow->rtt_count++;
	if (flow->rtt_count == 1)
		track->rtt_mean_ns = track->rtt_least_ns = ns;
	track->rtt_mean_ns += ns / 8 - track->rtt_mean_ns / 8;
	if (ns < track->rtt_least_ns)
		track->rtt_least_ns = ns;
}

static void measure(struct ldma_flow *flow, uint32_t psn, uint64_t now_ns)
{
	struct ldma_flow_track *track = flow->track;

	while (track->rtt_count) {
		struct track_rtt *rtt = &track->rtts[track->rtt_first];

		if (psn_diff(rtt->psn, psn) > 0)
			return;
		if (now_ns >= rtt->sent_ns)
			sample(flow, now_ns - rtt->sent_ns);
		track->rtt_first = (uint8_t)((track->rtt_first + 1) % TRACK_RTTS);
		track->rtt_count--;
	}
}

/* Makes psn the highest one that a response carried, if it is. */
static void answer(struct ldma_flow_track *track, uint32_t psn)
{
	int32_t ahead = psn_diff(psn, track->answered);

	if (ahead < 0)
		return;
	if (ahead >= TRACK_RING) {
		track->answered = (psn - TRACK_RING + 1) & 0xffffff;
		ahead = TRACK_RING - 1;
	}
	for (; ahead >= 0; ahead--, track->answered = psn_add(track->answered, 1))
		track->response[track->answered % TRACK_RING] = 0;
}

/* Marks requests below psn as answered; those that wait for data only if data came. */
static void clear_sent(struct ldma_flow_track *track, uint32_t psn, bool is_data)
{
	uint32_t p = track->sent_low, low = psn;
	uint8_t *at;

	if (psn_diff(track->high, p) > TRACK_RING)
		p = (track->high - TRACK_RING) & 0xffffff;
	if (psn_diff(psn, p) <= 0)
		return;
	for (; psn_diff(psn, p) > 0; p = psn_add(p, 1)) {
		at = track_request_at(track, p);
		if (!at || !(*at & REQUEST_SENT))
			continue;
		if (is_data || !track_is_data(*at & REQUEST_OPERATION))
			*at &= (uint8_t)~REQUEST_SENT;
		else if (low == psn)
			low = p;
	}
	track->sent_low = low;
}

/* Takes note that the responder has everything below psn. What is missing there in the capture arrived all the same. */
static void acknowledge(struct ldma_flow *flow, uint32_t psn, uint64_t now_ns, bool is_data)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t p = track->acked;
	uint8_t *at;

	clear_sent(track, psn, is_data);
	if (!track->is_acked && psn_diff(psn, p) < 0)
		track->acked = psn;
	track->is_acked = true;
	if (psn_diff(psn, p) <= 0)
		return;
	track->acked = psn;
	track->last_ns = now_ns;
	measure(flow, (psn - 1) & 0xffffff, now_ns);
	if (!flow->missing)
		return;
	if (psn_diff(track->high, p) > TRACK_RING)
		p = (track->high - TRACK_RING) & 0xffffff;
	for (; psn_diff(psn, p) > 0; p = psn_add(p, 1)) {
		at = track_request_at(track, p);
		if (!at || !(*at & REQUEST_MISSING))
			continue;
		flow->not_captured += !!(*at & REQUEST_NEVER_SEEN);
		flow->missing--;
		*at &= (uint8_t)~(REQUEST_MISSING | REQUEST_NEVER_SEEN);
	}
}

/* Takes note that the responder went from one PSN to another: data for [from, to) should have been in between. A
 * request that was repeated and got no answer at all was itself lost. */
static void mark_unanswered(struct ldma_flow_track *track, uint32_t from, uint32_t to)
{
	for (uint32_t i = track->read_count; i-- > 0;) {
		struct track_read *read = &track->reads[(track->read_first + i) % TRACK_READS];
		uint32_t end = psn_add(read->start, read->count);
		uint8_t *at;

		if (psn_diff(end, from) <= 0)
			return;
		if (psn_diff(to, read->start) <= 0)
			continue;
		if (read->is_again && psn_diff(read->start, from) >= 0 && psn_diff(end, to) <= 0) {
			at = track_request_at(track, read->start);
			if (at)
				*at |= REQUEST_UNANSWERED;
			continue;
		}
		for (uint32_t p = psn_diff(read->start, from) > 0 ? read->start : from;
		     psn_diff(end, p) > 0 && psn_diff(to, p) > 0; p = psn_add(p, 1)) {
			at = track_response_at(track, p);
			if (at && !(*at & RESPONSE_SENT))
				*at |= RESPONSE_MISSING;
		}
	}
}

/* Finds the run of requests that this response belongs to, and ends older runs. */
static bool find_pass(struct ldma_flow_track *track, uint32_t psn, bool is_data)
{
	uint32_t position;

	for (int i = 0; i < track->pass_count; i++) {
		struct track_pass pass = track->passes[i];

		if (psn_diff(psn, pass.position) < 0 || psn_diff(psn, pass.end) >= 0)
			continue;
		/* A later run whose next PSN it is is the better guess. */
		for (int j = i + 1; is_data && psn != pass.position && j < track->pass_count; j++)
			if (track->passes[j].position == psn)
				i = j;
		position = track->passes[i].position;
		for (int j = 0; i > 0 && j + i < track->pass_count; j++)
			track->passes[j] = track->passes[j + i];
		track->pass_count = (uint8_t)(track->pass_count - i);
		track->passes[0].position = psn_add(psn, 1);
		if (psn != position)
			mark_unanswered(track, position, psn);
		return true;
	}
	return false;
}

/* Takes data: a READ response or the answer to an atomic operation. */
static void data(struct ldma_flow *flow, struct ldma_flow *from, const struct ldma_packet *packet)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t psn = packet->psn;
	bool is_wanted, is_seen;
	uint8_t *at;

	answer(track, psn);
	acknowledge(flow, psn_add(psn, 1), packet->time_ns, true);
	is_wanted = find_pass(track, psn, true);
	at = track_response_at(track, psn);
	is_seen = !at || *at & RESPONSE_SEEN;
	if (at)
		*at = (uint8_t)((*at & ~RESPONSE_MISSING) | RESPONSE_SENT | RESPONSE_SEEN);
	if (is_seen) {
		from->retransmitted++;
		from->duplicates += !is_wanted;
	} else if (ldma_opcodes[packet->opcode].operation == LDMA_OP_READ_RESPONSE) {
		from->payload_bytes[LDMA_OP_READ] += packet->payload_length;
	}
}

/* Finds out from an acknowledgement what became of a request that was repeated unasked. */
static void clear_up(struct ldma_flow *flow, uint32_t psn, uint64_t now_ns)
{
	struct ldma_flow_track *track = flow->track;

	if (psn_diff(psn, track->back_high) < 0 &&
	    now_ns < track->back_ns + track->rtt_least_ns / 2) {
		/* It is too early for an answer to the repetition. */
		flow->crossed++;
		flow->timeouts--;
	} else if (psn_diff(psn, track->next) >= 0) {
		/* It acknowledges what was not yet sent again. */
		flow->lost[LDMA_OP_ACK]++;
	} else {
		return;
	}
	flow->lost[track->back_operation]--;
	flow->lost_unclear--;
	flow->duplicates += (uint32_t)psn_diff(track->next, track->back);
	track->is_back_unclear = false;
}

static void acknowledgement(struct ldma_flow *flow, uint32_t psn, uint64_t now_ns)
{
	struct ldma_flow_track *track = flow->track;
	bool is_new;
	uint8_t *at;

	if (track->is_back_unclear && psn_diff(track->back, track->acked) >= 0 &&
	    psn_diff(psn, track->back) >= 0)
		clear_up(flow, psn, now_ns);
	/* A duplicate may be acknowledged with the newest PSN: that says nothing about what is being repeated. */
	is_new = psn_diff(psn, track->answered) >= 0;
	answer(track, psn);
	acknowledge(flow, psn_add(psn, 1), now_ns, false);
	if (is_new)
		find_pass(track, psn, false);
	at = track_response_at(track, psn);
	if (at && (*at & RESPONSE_ACKS) < RESPONSE_ACKS)
		(*at)++;
}

/* Takes a NAK: the responder asks to start over at its PSN (IBA 9.7.5.1.2, 9.7.5.2.8), or ends the connection. */
static void refusal(struct ldma_flow *flow, const struct ldma_packet *packet,
		    enum ldma_aeth_kind kind)
{
	struct ldma_flow_track *track = flow->track;
	uint32_t psn = packet->psn;
	uint8_t *at = track_request_at(track, psn);
	bool is_sequence_error = kind == LDMA_AETH_NAK && !(packet->syndrome & 0x1f);

	answer(track, (psn - 1) & 0xffffff);
	acknowledge(flow, psn, packet->time_ns, false);
	if (is_sequence_error && at && *at & REQUEST_MISSING) {
		for (uint32_t p = psn; psn_diff(track->high, p) > 0; p = psn_add(p, 1)) {
			at = track_request_at(track, p);
			if (!at || !(*at & REQUEST_MISSING))
				continue;
			*at &= (uint8_t)~REQUEST_MISSING;
			flow->missing--;
			flow->lost[*at & REQUEST_NEVER_SEEN ? LDMA_OP_UNKNOWN
							    : *at & REQUEST_OPERATION]++;
		}
		flow->recovered_by_nak++;
	} else if (is_sequence_error && at && *at & REQUEST_SENT) {
		flow->lost[*at & REQUEST_OPERATION]++;
		flow->recovered_by_nak++;
	} else if (is_sequence_error && at && !*at && psn_diff(psn, track->first) < 0) {
		*at = REQUEST_NEVER_SEEN;
		flow->lost[LDMA_OP_UNKNOWN]++;
		flow->recovered_by_nak++;
	}
	if (at)
		track->back_operation = *at & REQUEST_OPERATION;
	at = track_response_at(track, (psn - 1) & 0xffffff);
	if (at && (*at & RESPONSE_ACKS) < RESPONSE_ACKS)
		(*at)++;
	track_clear(track->request, track->high, psn, track->high, REQUEST_SENT);
	track_pass_cut(track, psn);
	track->nak_psn = psn;
	track->is_back_unclear = false;
	if (kind == LDMA_AETH_RNR_NAK)
		track->is_rnr_pending = true;
	else
		track->is_nak_pending = true;
}

bool track_response(struct ldma_flow *flow, struct ldma_flow *from,
		    const struct ldma_packet *packet)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	struct ldma_flow_track *track = flow->track;
	int32_t ahead;

	if (!track)
		return false;
	if (track->open_bytes && info->operation == LDMA_OP_READ_RESPONSE &&
	    (flow->mtu || info->role & LDMA_ROLE_LAST))
		track_open_read(flow, psn_add(packet->psn, 1));
	ahead = psn_diff(packet->psn, track->high);
	if (ahead < -TRACK_FAR && psn_diff(packet->psn, track->acked) < -TRACK_FAR)
		return false;
	/* Responses to a READ of unknown length run ahead of what is known to be asked for. */
	if (ahead >= 0 && !(track->open_bytes && info->operation == LDMA_OP_READ_RESPONSE))
		return false;
	track->response_psn = packet->psn;
	track->response_ns = packet->time_ns;
	if (info->operation != LDMA_OP_ACK) {
		data(flow, from, packet);
		return true;
	}
	if (!(packet->headers & LDMA_HAS_AETH))
		return true;
	switch (ldma_aeth_kind(packet->syndrome)) {
	case LDMA_AETH_ACK:
		acknowledgement(flow, packet->psn, packet->time_ns);
		break;
	case LDMA_AETH_RNR_NAK:
	case LDMA_AETH_NAK:
		refusal(flow, packet, ldma_aeth_kind(packet->syndrome));
		break;
	case LDMA_AETH_RESERVED:
		break;
	}
	return true;
}
