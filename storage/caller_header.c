#include "caller_header.h"

#include "reader.h"

enum { VERSION = 1 };
enum proc { RDMA_MSG = 0, RDMA_NOMSG = 1, RDMA_ERROR = 4 };

static uint8_t *put_word(uint8_t *p, uint32_t word)
{
	put32(p, word);
	return p + 4;
}

static uint8_t *put_segment(uint8_t *p, const struct ldma_segment *segment)
{
	put32(p, segment->key);
	put32(p + 4, segment->length);
	put64(p + 8, segment->va);
	return p + 16;
}

static uint8_t *put_read(uint8_t *p, uint32_t position, const struct ldma_segment *segment)
{
	if (!segment->length)
		return p;
	return put_segment(put_word(put_word(p, 1), position), segment);
}

/* One chunk of one segment, or none. */
static uint8_t *put_chunk(uint8_t *p, const struct ldma_segment *segment)
{
	if (!segment->length)
		return p;
	return put_segment(put_word(put_word(p, 1), 1), segment);
}

uint32_t ldma_call_header_encode(const struct ldma_call_header *header, uint8_t *ret)
{
	uint8_t *p = ret;

	p = put_word(p, header->xid);
	p = put_word(p, VERSION);
	p = put_word(p, header->credits);
	p = put_word(p, header->message.length ? RDMA_NOMSG : RDMA_MSG);
	p = put_read(p, 0, &header->message);
	p = put_word(put_read(p, header->position, &header->read), 0);
	p = put_word(put_chunk(p, &header->write), 0);
	p = header->reply.length ? put_chunk(p, &header->reply) : put_word(p, 0);
	return (uint32_t)(p - ret);
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

/* What a returned chunk says was written; reader->is_bad: it is not one segment. Ours are returned as they were, with
 * the length that was used (RFC 8166, 3.4.6). */
static bool take_chunk(struct ldma_reader *reader, const struct ldma_segment *offered,
		       uint32_t *ret_length)
{
	struct ldma_segment got;

	ldma_reader_expect(reader, 1);
	got.key = ldma_reader_word(reader);
	got.length = ldma_reader_word(reader);
	got.va = ldma_reader_hyper(reader);
	*ret_length = got.length;
	return offered->length && got.key == offered->key && got.va == offered->va &&
	       got.length <= offered->length;
}

static enum ldma_reply_kind decode_lists(struct ldma_reader *reader, uint32_t proc,
					 const struct ldma_segment *write,
					 const struct ldma_segment *reply,
					 struct ldma_reply_header *ret)
{
	bool is_ours = true, has_reply;

	ldma_reader_expect(reader, 0); /* replies have no read list */
	if (ldma_reader_word(reader)) {
		is_ours = take_chunk(reader, write, &ret->placed);
		if (!reader->is_bad && ldma_reader_word(reader))
			is_ours = false; /* more than were offered */
	}
	if (is_ours && !reader->is_bad) {
		has_reply = ldma_reader_word(reader);
		if (has_reply)
			is_ours = take_chunk(reader, reply, &ret->reply_length);
		else if (proc == RDMA_NOMSG)
			is_ours = false;
	}
	if (reader->is_bad)
		return LDMA_REPLY_MALFORMED;
	if (!is_ours)
		return LDMA_REPLY_BAD_CHUNKS;
	return proc == RDMA_NOMSG ? LDMA_REPLY_LONG : LDMA_REPLY_INLINE;
}

enum ldma_reply_kind ldma_reply_header_decode(const uint8_t *data, uint32_t length,
					      const struct ldma_segment *write,
					      const struct ldma_segment *reply,
					      struct ldma_reply_header *ret)
{
	struct ldma_reader reader = {.at = data, .left = length};
	enum ldma_reply_kind kind;
	uint32_t xid, version, proc;

	*ret = (struct ldma_reply_header){0};
	xid = ldma_reader_word(&reader);
	version = ldma_reader_word(&reader);
	ldma_reader_word(&reader);
	proc = ldma_reader_word(&reader);
	if (proc == RDMA_ERROR && !reader.is_bad) /* of whatever version (RFC 8166, 4.5) */
		return LDMA_REPLY_BAD_CALL;
	if (version != VERSION || (proc != RDMA_MSG && proc != RDMA_NOMSG))
		return LDMA_REPLY_MALFORMED;
	kind = decode_lists(&reader, proc, write, reply, ret);
	ret->length = length - reader.left;
	/* The message has the same XID (RFC 8166, 4.5.2); behind RDMA_NOMSG there is none. */
	if (kind == LDMA_REPLY_INLINE) {
		ldma_reader_expect(&reader, xid);
		if (reader.is_bad || reader.left % 4)
			return LDMA_REPLY_MALFORMED;
	} else if (kind == LDMA_REPLY_LONG && reader.left) {
		return LDMA_REPLY_MALFORMED;
	}
	return kind;
}
