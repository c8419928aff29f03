/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/rpcrdma.h"

#include <errno.h>

#include "rpc/reader.h"

#define SEGMENT_BYTES 16

struct budget {
	const struct ldma_rpcrdma_limits *limits;
	uint64_t list_bytes;
	uint32_t segments;
	uint32_t room; /* for the segments that are kept */
};

static bool boolean(struct ldma_reader *in)
{
	uint32_t value = ldma_reader_word(in);

	if (value > 1)
		in->is_bad = true;
	return value == 1;
}

static void segment(struct ldma_reader *in, struct budget *budget, struct ldma_rpcrdma *header,
		    struct ldma_rpcrdma_chunk *chunk)
{
	struct ldma_rpcrdma_segment found;

	found.handle = ldma_reader_word(in);
	found.length = ldma_reader_word(in);
	found.offset = ldma_reader_hyper(in);
	/* A segment may end at the last address, and no further. */
	if (found.length && found.offset > UINT64_MAX - (found.length - 1))
		in->is_bad = true;
	if (found.length > budget->list_bytes || !budget->segments)
		in->is_bad = true;
	if (in->is_bad)
		return;
	budget->list_bytes -= found.length;
	budget->segments--;
	if (header->segment_count < budget->room)
		header->segments[header->segment_count] = found;
	header->segment_count++;
	chunk->count++;
	chunk->length += found.length;
}

/* Sorts segments by position: those of one chunk come in order, those of several chunks in any order. */
static void sort(struct ldma_rpcrdma_segment *segments, uint32_t *positions, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		struct ldma_rpcrdma_segment moved = segments[i];
		uint32_t position = positions[i], j = i;

		for (; j && positions[j - 1] > position; j--) {
			segments[j] = segments[j - 1];
			positions[j] = positions[j - 1];
		}
		segments[j] = moved;
		positions[j] = position;
	}
}

static void group(struct ldma_reader *in, const struct budget *budget, struct ldma_rpcrdma *header,
		  const uint32_t *positions)
{
	struct ldma_rpcrdma_chunk *chunk = NULL;

	for (uint32_t i = 0; i < header->segment_count; i++) {
		if (!chunk || chunk->position != positions[i]) {
			if (header->read_count == budget->limits->chunks) {
				in->is_bad = true;
				return;
			}
			chunk = &header->reads[header->read_count++];
			*chunk = (struct ldma_rpcrdma_chunk){.position = positions[i], .first = i};
		}
		chunk->count++;
		chunk->length += header->segments[i].length;
	}
}

static void read_list(struct ldma_reader *in, struct budget *budget, struct ldma_rpcrdma *header)
{
	uint32_t positions[LDMA_RPCRDMA_SEGMENTS];
	struct ldma_rpcrdma_chunk all = {0};

	budget->list_bytes = budget->limits->list_bytes;
	while (boolean(in) && !in->is_bad) {
		uint32_t position = ldma_reader_word(in);

		if (header->segment_count < LDMA_RPCRDMA_SEGMENTS)
			positions[header->segment_count] = position;
		segment(in, budget, header, &all);
	}
	if (in->is_bad || !header->segment_count || header->segment_count > budget->room)
		return;
	sort(header->segments, positions, header->segment_count);
	group(in, budget, header, positions);
}

static void chunk(struct ldma_reader *in, struct budget *budget, struct ldma_rpcrdma *header,
		  struct ldma_rpcrdma_chunk *ret)
{
	uint32_t count = ldma_reader_word(in);

	*ret = (struct ldma_rpcrdma_chunk){.first = header->segment_count};
	if (count > budget->segments || count > in->left / SEGMENT_BYTES)
		in->is_bad = true;
	for (uint32_t i = 0; i < count && !in->is_bad; i++)
		segment(in, budget, header, ret);
}

static void write_list(struct ldma_reader *in, struct budget *budget, struct ldma_rpcrdma *header)
{
	budget->list_bytes = budget->limits->list_bytes;
	while (boolean(in) && !in->is_bad) {
		if (header->write_count == budget->limits->chunks) {
			in->is_bad = true;
			return;
		}
		chunk(in, budget, header, &header->writes[header->write_count++]);
	}
}

/* Checks where the header says that the RPC message is (RFC 8166, 3.5 and 4.5.2), and that positions are those of XDR
 * items, each behind the data of the chunk before. The chunk at position 0 is the reduced message itself, into which the
 * others are put. */
static bool has_good_placement(const struct ldma_rpcrdma *header)
{
	bool has_zero = header->read_count && !header->reads[0].position;
	uint64_t end = 0;

	for (uint32_t i = 0; i < header->read_count; i++) {
		const struct ldma_rpcrdma_chunk *read = &header->reads[i];

		if (read->position % 4 || end > read->position)
			return false;
		if (read->position)
			end = read->position + read->length;
	}
	if (header->proc == LDMA_RPCRDMA_MSG)
		return !has_zero;
	return has_zero || (!header->read_count && header->has_reply && header->reply.count);
}

static int error(struct ldma_reader *in, struct ldma_rpcrdma *header)
{
	header->error = ldma_reader_word(in);
	if (header->error == LDMA_RPCRDMA_ERR_VERS) {
		header->lowest = ldma_reader_word(in);
		header->highest = ldma_reader_word(in);
	} else if (header->error != LDMA_RPCRDMA_ERR_CHUNK) {
		return -EPROTO;
	}
	return in->is_bad ? -EPROTO : 0;
}

static int message(struct ldma_reader *in, const struct ldma_rpcrdma_limits *limits, uint32_t room,
		   struct ldma_rpcrdma *header)
{
	struct budget budget = {.limits = limits, .segments = limits->segments, .room = room};

	read_list(in, &budget, header);
	if (!in->is_bad)
		write_list(in, &budget, header);
	budget.list_bytes = limits->list_bytes;
	if (!in->is_bad && boolean(in)) {
		header->has_reply = true;
		chunk(in, &budget, header, &header->reply);
	}
	if (in->is_bad)
		return -EPROTO;
	if (header->segment_count > room)
		return -ENOSPC;
	if (!has_good_placement(header))
		return -EPROTO;
	if (header->proc == LDMA_RPCRDMA_NOMSG)
		return in->left ? -EPROTO : 0;
	return in->left < 4 || get32(in->at) != header->xid ? -EPROTO : 0;
}

int ldma_rpcrdma_decode(const uint8_t *data, uint32_t length,
			const struct ldma_rpcrdma_limits *limits,
			struct ldma_rpcrdma_segment *segments, uint32_t room,
			struct ldma_rpcrdma *ret)
{
	struct ldma_reader in = {data, length, false};
	int result = 0;

	ret->segments = segments;
	ret->read_count = ret->write_count = ret->segment_count = 0;
	ret->has_reply = false;
	ret->xid = ldma_reader_word(&in);
	ret->version = ldma_reader_word(&in);
	ret->credits = ldma_reader_word(&in);
	ret->proc = ldma_reader_word(&in);
	if (in.is_bad)
		return -EPROTO;
	if (ret->proc == LDMA_RPCRDMA_ERROR) /* of any version: it may be the answer to another */
		result = error(&in, ret);
	else if (ret->version != LDMA_RPCRDMA_VERSION)
		return -EPROTONOSUPPORT;
	else if (ret->proc == LDMA_RPCRDMA_MSG || ret->proc == LDMA_RPCRDMA_NOMSG)
		result = message(&in, limits, room, ret);
	else if (ret->proc != LDMA_RPCRDMA_DONE) /* section 4.6.1: also RDMA_MSGP */
		return -EPROTO;
	ret->header_bytes = (uint32_t)(in.at - data);
	return result;
}

static uint8_t *put_segments(uint8_t *at, const struct ldma_rpcrdma *header,
			     const struct ldma_rpcrdma_chunk *chunk, uint64_t bytes)
{
	put32(at, chunk->count);
	at += 4;
	for (uint32_t i = 0; i < chunk->count; i++, at += SEGMENT_BYTES) {
		const struct ldma_rpcrdma_segment *one = &header->segments[chunk->first + i];
		uint32_t used = bytes < one->length ? (uint32_t)bytes : one->length;

		put32(at, one->handle);
		put32(at + 4, used);
		put64(at + 8, one->offset);
		bytes -= used;
	}
	return at;
}

static uint8_t *put_word(uint8_t *at, uint32_t value)
{
	put32(at, value);
	return at + 4;
}

static uint32_t write_list_bytes(const struct ldma_rpcrdma *header)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < header->write_count; i++)
		bytes += 8 + header->writes[i].count * SEGMENT_BYTES;
	return bytes;
}

uint32_t ldma_rpcrdma_bytes(const struct ldma_rpcrdma *header)
{
	uint32_t bytes = LDMA_RPCRDMA_FIXED_BYTES + write_list_bytes(header);

	for (uint32_t i = 0; i < header->read_count; i++)
		bytes += header->reads[i].count * (8 + SEGMENT_BYTES);
	return header->has_reply ? bytes + 4 + header->reply.count * SEGMENT_BYTES : bytes;
}

void ldma_rpcrdma_encode(const struct ldma_rpcrdma *header, uint8_t *ret)
{
	uint8_t *at = ret;

	at = put_word(at, header->xid);
	at = put_word(at, header->version);
	at = put_word(at, header->credits);
	at = put_word(at, header->proc);
	for (uint32_t i = 0; i < header->read_count; i++) {
		const struct ldma_rpcrdma_chunk *read = &header->reads[i];

		for (uint32_t j = 0; j < read->count; j++, at += SEGMENT_BYTES) {
			const struct ldma_rpcrdma_segment *one = &header->segments[read->first + j];

			at = put_word(at, 1);
			at = put_word(at, read->position);
			put32(at, one->handle);
			put32(at + 4, one->length);
			put64(at + 8, one->offset);
		}
	}
	at = put_word(at, 0);
	for (uint32_t i = 0; i < header->write_count; i++)
		at = put_segments(put_word(at, 1), header, &header->writes[i], UINT64_MAX);
	at = put_word(at, 0);
	at = put_word(at, header->has_reply);
	if (header->has_reply)
		put_segments(at, header, &header->reply, UINT64_MAX);
}

uint32_t ldma_rpcrdma_reply_bytes(const struct ldma_rpcrdma *call, bool is_long)
{
	uint32_t bytes = LDMA_RPCRDMA_FIXED_BYTES + write_list_bytes(call);

	return is_long ? bytes + 4 + call->reply.count * SEGMENT_BYTES : bytes;
}

void ldma_rpcrdma_encode_reply(const struct ldma_rpcrdma *call, uint32_t credits,
			       uint64_t data_bytes, bool is_long, uint64_t reply_bytes,
			       uint8_t *ret)
{
	uint8_t *at = ret;

	at = put_word(at, call->xid);
	at = put_word(at, LDMA_RPCRDMA_VERSION);
	at = put_word(at, credits);
	at = put_word(at, is_long ? LDMA_RPCRDMA_NOMSG : LDMA_RPCRDMA_MSG);
	at = put_word(at, 0); /* a reply reads nothing */
	for (uint32_t i = 0; i < call->write_count; i++)
		at = put_segments(put_word(at, 1), call, &call->writes[i], i ? 0 : data_bytes);
	at = put_word(at, 0);
	at = put_word(at, is_long);
	if (is_long)
		put_segments(at, call, &call->reply, reply_bytes);
}

uint32_t ldma_rpcrdma_encode_error(const uint8_t *data, uint32_t credits,
				   enum ldma_rpcrdma_error code, uint8_t *ret)
{
	uint8_t *at = ret + 8;

	memmove(ret, data, 8); /* the version, too, is that of the call (section 4.5) */
	at = put_word(at, credits);
	at = put_word(at, LDMA_RPCRDMA_ERROR);
	at = put_word(at, code);
	if (code == LDMA_RPCRDMA_ERR_VERS) {
		at = put_word(at, LDMA_RPCRDMA_VERSION);
		at = put_word(at, LDMA_RPCRDMA_VERSION);
	}
	return (uint32_t)(at - ret);
}

bool ldma_rpcrdma_is_answered(const uint8_t *data, uint32_t length)
{
	return length >= 16 && get32(data + 12) != LDMA_RPCRDMA_ERROR;
}

uint32_t ldma_rpcrdma_only_handle(const struct ldma_rpcrdma *header)
{
	for (uint32_t i = 1; i < header->segment_count; i++)
		if (header->segments[i].handle != header->segments[0].handle)
			return 0;
	return header->segment_count ? header->segments[0].handle : 0;
}
