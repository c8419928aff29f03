/* SPDX-License-Identifier: BSD-2-Clause */
#include "load/io_call.h"

#include <errno.h>

#include "rpc/reader.h"
#include "wire/rpc.h"

enum { MINOR = 1, DENIED_BASE = 1000, TAG_MOST = 1024, OPERATIONS = 3 };

struct writer {
	uint8_t *start, *at;
};

static void word(struct writer *out, uint32_t value)
{
	put32(out->at, value);
	out->at += 4;
}

static void bytes(struct writer *out, const uint8_t *data, uint32_t length)
{
	memcpy(out->at, data, length);
	out->at += length;
}

static uint32_t place(const struct writer *out)
{
	return (uint32_t)(out->at - out->start);
}

int ldma_io_template_init(struct ldma_io_template *ret, const struct ldma_io_target *target,
			  bool is_write)
{
	struct writer out = {ret->message, ret->message};

	if (target->handle_length > LDMA_HANDLE_MOST ||
	    target->credential_length > LDMA_CREDENTIAL_MOST || target->credential_length % 4)
		return -EINVAL;
	*ret = (struct ldma_io_template){0};
	word(&out, 0);
	word(&out, LDMA_RPC_CALL);
	word(&out, LDMA_RPC_VERSION);
	word(&out, LDMA_NFS_PROGRAM);
	word(&out, LDMA_NFS_VERSION);
	word(&out, LDMA_NFS_COMPOUND);
	bytes(&out, target->credential, target->credential_length);
	word(&out, 0); /* no tag */
	word(&out, MINOR);
	word(&out, OPERATIONS);

	word(&out, LDMA_NFS_OP_SEQUENCE);
	bytes(&out, target->session, sizeof(target->session));
	ret->sequence_at = place(&out);
	out.at += 12;  /* sequence, slot, highest slot */
	word(&out, 0); /* need not be cached */

	word(&out, LDMA_NFS_OP_PUTFH);
	word(&out, target->handle_length);
	bytes(&out, target->handle, target->handle_length);
	while (place(&out) % 4)
		*out.at++ = 0;

	word(&out, is_write ? LDMA_NFS_OP_WRITE : LDMA_NFS_OP_READ);
	bytes(&out, target->stateid, sizeof(target->stateid));
	ret->offset_at = place(&out);
	out.at += 8;
	if (is_write)
		word(&out, LDMA_NFS_UNSTABLE);
	ret->count_at = place(&out);
	out.at += 4;
	ret->length = place(&out);
	return 0;
}

/* Parses a reply up to the results of an RPC that was executed. */
static enum ldma_io_verdict parse_rpc(struct ldma_reader *reader, struct ldma_io_reply *ret)
{
	ldma_reader_word(reader); /* the XID has led here */
	ldma_reader_expect(reader, LDMA_RPC_REPLY);
	if (ldma_reader_word(reader)) {
		ret->status = DENIED_BASE + ldma_reader_word(reader);
		return reader->is_bad ? LDMA_IO_MALFORMED : LDMA_IO_REFUSED;
	}
	ldma_reader_word(reader);
	ldma_reader_skip_opaque(reader, LDMA_RPC_AUTH_MOST);
	ret->status = ldma_reader_word(reader);
	if (reader->is_bad)
		return LDMA_IO_MALFORMED;
	return ret->status ? LDMA_IO_REFUSED : LDMA_IO_DONE;
}

/* Parses the next result, which has to be this operation's. Returns true if it is a success. */
static bool parse_status(struct ldma_reader *reader, struct ldma_io_reply *ret, uint32_t operation)
{
	ldma_reader_expect(reader, operation);
	ret->operation = operation;
	ret->status = ldma_reader_word(reader);
	return !reader->is_bad && !ret->status;
}

static void parse_sequence(struct ldma_reader *reader, const uint8_t session[16],
			   const struct ldma_io *io, struct ldma_io_reply *ret)
{
	const uint8_t *id = ldma_reader_take(reader, 16);

	if (id && memcmp(id, session, 16))
		reader->is_bad = true;
	ldma_reader_expect(reader, io->sequence);
	ldma_reader_expect(reader, io->slot);
	ldma_reader_word(reader); /* sr_highest_slotid */
	ret->target = ldma_reader_word(reader);
	ldma_reader_word(reader); /* flags */
	ret->has_sequence = !reader->is_bad;
}

static void parse_read(struct ldma_reader *reader, uint32_t placed, const struct ldma_io *io,
		       struct ldma_io_reply *ret)
{
	uint32_t end = ldma_reader_word(reader), padded;

	ret->is_end = end;
	ret->count = ldma_reader_word(reader);
	padded = (ret->count + 3) & ~UINT32_C(3);
	if (end > 1 || ret->count > io->count || (placed && placed != ret->count))
		reader->is_bad = true;
	else if (!placed)
		ret->data = ldma_reader_take(reader, padded);
}

static void parse_write(struct ldma_reader *reader, const struct ldma_io *io,
			struct ldma_io_reply *ret)
{
	ret->count = ldma_reader_word(reader);
	if (ret->count > io->count || ldma_reader_word(reader) > LDMA_NFS_FILE_SYNC)
		reader->is_bad = true;
	ldma_reader_hyper(reader); /* the verifier */
}

/* Parses the results: one for each operation until one failed, whose status is that of the COMPOUND. */
static void parse_results(struct ldma_reader *reader, uint32_t count, uint32_t placed,
			  const uint8_t session[16], const struct ldma_io *io, bool is_write,
			  struct ldma_io_reply *ret)
{
	static const uint32_t operations[] = {LDMA_NFS_OP_SEQUENCE, LDMA_NFS_OP_PUTFH, 0};
	uint32_t status = ret->status;

	for (uint32_t i = 0; i < count && !reader->is_bad; i++) {
		uint32_t last = is_write ? LDMA_NFS_OP_WRITE : LDMA_NFS_OP_READ;
		bool is_ok = parse_status(reader, ret, operations[i] ? operations[i] : last);

		if (!is_ok && i + 1 != count)
			reader->is_bad = true;
		if (!is_ok)
			break;
		if (!i)
			parse_sequence(reader, session, io, ret);
		else if (i == OPERATIONS - 1 && is_write)
			parse_write(reader, io, ret);
		else if (i == OPERATIONS - 1)
			parse_read(reader, placed, io, ret);
	}
	if (ret->status != status || (!status && count != OPERATIONS) || reader->left)
		reader->is_bad = true;
}

enum ldma_io_verdict ldma_io_parse(const uint8_t *message, uint32_t length, uint32_t placed,
				   const uint8_t session[16], const struct ldma_io *io,
				   bool is_write, struct ldma_io_reply *ret)
{
	struct ldma_reader reader = {.at = message, .left = length};
	enum ldma_io_verdict verdict;
	uint32_t count;

	*ret = (struct ldma_io_reply){0};
	verdict = parse_rpc(&reader, ret);
	if (verdict != LDMA_IO_DONE)
		return verdict;
	ret->status = ldma_reader_word(&reader);
	ldma_reader_skip_opaque(&reader, TAG_MOST);
	count = ldma_reader_word(&reader);
	if (count > OPERATIONS || (!count && !ret->status))
		return LDMA_IO_MALFORMED;
	parse_results(&reader, count, placed, session, io, is_write, ret);
	if (reader.is_bad)
		return LDMA_IO_MALFORMED;
	return ret->status ? LDMA_IO_FAILED : LDMA_IO_DONE;
}
