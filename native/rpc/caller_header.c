/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/caller_header.h"

#include "base/bytes.h"
#include "rpc/rpcrdma.h"

#define SEGMENTS 8 /* of a reply; ours have two at most */

static void add_segment(struct ldma_rpcrdma *header, const struct ldma_segment *segment,
			uint32_t position, struct ldma_rpcrdma_chunk *ret)
{
	*ret = (struct ldma_rpcrdma_chunk){
		.position = position,
		.first = header->segment_count,
		.count = 1,
		.length = segment->length,
	};
	header->segments[header->segment_count++] = (struct ldma_rpcrdma_segment){
		.offset = segment->va,
		.handle = segment->key,
		.length = segment->length,
	};
}

uint32_t ldma_call_header_encode(const struct ldma_call_header *header, uint8_t *ret)
{
	struct ldma_rpcrdma_segment segments[4];
	struct ldma_rpcrdma out;

	out.xid = header->xid;
	out.version = LDMA_RPCRDMA_VERSION;
	out.credits = header->credits;
	out.proc = header->message.length ? LDMA_RPCRDMA_NOMSG : LDMA_RPCRDMA_MSG;
	out.segments = segments;
	out.read_count = out.write_count = out.segment_count = 0;
	out.has_reply = header->reply.length;
	if (header->message.length)
		add_segment(&out, &header->message, 0, &out.reads[out.read_count++]);
	if (header->read.length)
		add_segment(&out, &header->read, header->position, &out.reads[out.read_count++]);
	if (header->write.length)
		add_segment(&out, &header->write, 0, &out.writes[out.write_count++]);
	if (out.has_reply)
		add_segment(&out, &header->reply, 0, &out.reply);
	ldma_rpcrdma_encode(&out, ret);
	return ldma_rpcrdma_bytes(&out);
}

bool ldma_reply_header_peek(const uint8_t *data, uint32_t length, uint32_t *ret_xid,
			    uint32_t *ret_credits)
{
	if (length < 16)
		return false;
	*ret_xid = get32(data);
	*ret_credits = get32(data + 8);
	return true;
}

/* Returns whether the chunk is ours: the peer returns it as it was, with the length that it used (RFC 8166, 3.4.6). */
static bool is_ours(const struct ldma_rpcrdma *header, const struct ldma_rpcrdma_chunk *chunk,
		    const struct ldma_segment *offered)
{
	const struct ldma_rpcrdma_segment *got = &header->segments[chunk->first];

	return offered->length && chunk->count == 1 && got->handle == offered->key &&
	       got->offset == offered->va && got->length <= offered->length;
}

enum ldma_reply_kind ldma_reply_header_decode(const uint8_t *data, uint32_t length,
					      const struct ldma_segment *write,
					      const struct ldma_segment *reply,
					      struct ldma_reply_header *ret)
{
	static const struct ldma_rpcrdma_limits limits = {SEGMENTS, SEGMENTS, UINT64_MAX};
	struct ldma_rpcrdma_segment segments[SEGMENTS];
	struct ldma_rpcrdma header;

	*ret = (struct ldma_reply_header){0};
	if (ldma_rpcrdma_decode(data, length, &limits, segments, SEGMENTS, &header))
		return LDMA_REPLY_MALFORMED;
	if (header.proc == LDMA_RPCRDMA_ERROR)
		return LDMA_REPLY_BAD_CALL;
	/* Replies have no read list, and messages are whole words. */
	if (header.proc == LDMA_RPCRDMA_DONE || header.read_count ||
	    (length - header.header_bytes) % 4)
		return LDMA_REPLY_MALFORMED;
	if (header.write_count > 1 ||
	    (header.write_count && !is_ours(&header, &header.writes[0], write)) ||
	    (header.has_reply && !is_ours(&header, &header.reply, reply)))
		return LDMA_REPLY_BAD_CHUNKS;
	ret->length = header.header_bytes;
	ret->placed = header.write_count ? (uint32_t)header.writes[0].length : 0;
	ret->reply_length = header.has_reply ? (uint32_t)header.reply.length : 0;
	return header.proc == LDMA_RPCRDMA_NOMSG ? LDMA_REPLY_LONG : LDMA_REPLY_INLINE;
}
