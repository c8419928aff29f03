/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/compound.h"

#include <string.h>

#include "nfs/opens.h"
#include "rpc/reader.h"
#include "wire/rpc.h"

/* The attributes that fstat knows, by word of the bitmap, without fsid and owners: Python answers those. */
#define BIT(name) (UINT32_C(1) << LDMA_NFS_ATTR_##name % 32)
static const uint32_t known[2] = {
	BIT(TYPE) | BIT(CHANGE) | BIT(SIZE) | BIT(FILEID),
	BIT(MODE) | BIT(NUMLINKS) | BIT(SPACE_USED) | BIT(TIME_ACCESS) | BIT(TIME_METADATA) |
		BIT(TIME_MODIFY),
};

static uint32_t padded(uint32_t length)
{
	return (length + 3) & ~UINT32_C(3);
}

/* Reads opaque data of at most `most` bytes, which is far from the end of 32 bits. It ignores the padding: some
 * encoders leave other bytes in it. */
static const uint8_t *opaque(struct ldma_reader *in, uint32_t most, uint32_t *length)
{
	const uint8_t *bytes = NULL;

	*length = ldma_reader_word(in);
	if (*length <= most)
		bytes = ldma_reader_take(in, padded(*length));
	if (!bytes) {
		in->is_bad = true;
		*length = 0;
		return NULL;
	}
	return bytes;
}

static uint32_t auth_sys_uid(const uint8_t *body, uint32_t length)
{
	struct ldma_reader in = {body, length, false};
	uint32_t uid, machine_length, gids;

	ldma_reader_word(&in); /* stamp */
	opaque(&in, LDMA_RPC_MACHINE_MOST, &machine_length);
	uid = ldma_reader_word(&in);
	ldma_reader_word(&in); /* gid */
	gids = ldma_reader_word(&in);
	if (in.is_bad || gids > LDMA_RPC_GIDS_MOST || gids * 4 != in.left)
		return LDMA_UID_NONE;
	return uid;
}

/* Decodes the call up to the tag of COMPOUND. */
static void decode_call(struct ldma_reader *in, struct ldma_compound *ret)
{
	uint32_t flavor, length;
	const uint8_t *body;

	ret->xid = ldma_reader_word(in);
	ldma_reader_expect(in, LDMA_RPC_CALL);
	ldma_reader_expect(in, LDMA_RPC_VERSION);
	ldma_reader_expect(in, LDMA_NFS_PROGRAM);
	ldma_reader_expect(in, LDMA_NFS_VERSION);
	ldma_reader_expect(in, LDMA_NFS_COMPOUND);
	flavor = ldma_reader_word(in);
	body = opaque(in, LDMA_RPC_AUTH_MOST, &length);
	ret->uid = LDMA_UID_NONE;
	if (flavor == LDMA_RPC_AUTH_SYS && body)
		ret->uid = auth_sys_uid(body, length);
	/* A malformed AUTH_SYS, or one of the uid that stands for none, is left to Python. */
	if (flavor == LDMA_RPC_AUTH_SYS ? ret->uid == LDMA_UID_NONE
					: flavor != LDMA_RPC_AUTH_NONE || length)
		in->is_bad = true;
	ldma_reader_expect(in, LDMA_RPC_AUTH_NONE); /* the verifier */
	ldma_reader_expect(in, 0);
	ret->tag = opaque(in, LDMA_TAG_MAX, &ret->tag_length);
	for (uint32_t i = 0; i < ret->tag_length; i++)
		if (ret->tag[i] > 0x7f) /* Python checks whether it is UTF-8 */
			in->is_bad = true;
}

static void decode_sequence(struct ldma_reader *in, struct ldma_compound *ret)
{
	uint32_t cache_this;

	ldma_reader_expect(in, LDMA_NFS_OP_SEQUENCE);
	ret->session_id = ldma_reader_take(in, LDMA_SESSION_ID_BYTES);
	ret->sequence.sequence = ldma_reader_word(in);
	ret->sequence.slot = ldma_reader_word(in);
	ret->sequence.highest = ldma_reader_word(in);
	cache_this = ldma_reader_word(in);
	ret->sequence.cache_this = cache_this;
	if (cache_this > 1)
		in->is_bad = true;
}

/* Finds the data of a WRITE. The rest of the message follows the data, or its place if it is in the read chunk. */
static void decode_data(struct ldma_reader *in, struct ldma_compound *ret, uint32_t position,
			uint32_t read_position, uint64_t read_length)
{
	if (!read_length) {
		ret->data = opaque(in, UINT32_MAX - 3, &ret->count);
		return;
	}
	ret->data = NULL;
	ret->count = ldma_reader_word(in);
	/* RFC 8166 3.4.6: the chunk may come with the padding or without. */
	if (position + 4 != read_position || ret->count > UINT32_MAX - 3 ||
	    (read_length != ret->count && read_length != padded(ret->count)))
		in->is_bad = true;
}

static void decode_getattr(struct ldma_reader *in, struct ldma_compound *ret)
{
	uint32_t words, bits;

	ldma_reader_expect(in, LDMA_NFS_OP_GETATTR);
	ret->has_getattr = true;
	words = ldma_reader_word(in);
	if (words > 3)
		in->is_bad = true;
	for (uint32_t i = 0; i < words && !in->is_bad; i++) {
		bits = ldma_reader_word(in);
		if (bits & ~(i < 2 ? known[i] : 0))
			in->is_bad = true;
		else if (i < 2)
			ret->attributes[i] = bits;
	}
}

bool ldma_compound_decode(struct ldma_compound *ret, const uint8_t *message, uint32_t length,
			  uint32_t read_position, uint64_t read_length)
{
	struct ldma_reader in = {message, length, false};
	uint32_t minor, operations;

	*ret = (struct ldma_compound){0};
	decode_call(&in, ret);
	minor = ldma_reader_word(&in);
	operations = ldma_reader_word(&in);
	if (minor < 1 || minor > 2 || operations < 3 || operations > 4)
		return false;
	decode_sequence(&in, ret);
	ldma_reader_expect(&in, LDMA_NFS_OP_PUTFH);
	ret->handle = opaque(&in, LDMA_HANDLE_MAX, &ret->handle_length);
	ret->op = ldma_reader_word(&in);
	if (ret->op == LDMA_NFS_OP_READ || ret->op == LDMA_NFS_OP_WRITE) {
		ret->seqid = ldma_reader_word(&in);
		ret->other = ldma_reader_take(&in, LDMA_OTHER_BYTES);
	} else if (ret->op != LDMA_NFS_OP_COMMIT) {
		return false;
	}
	ret->offset = ldma_reader_hyper(&in);
	if (ret->op == LDMA_NFS_OP_WRITE) {
		ret->stable = ldma_reader_word(&in);
		decode_data(&in, ret, (uint32_t)(in.at - message), read_position, read_length);
	} else {
		ret->count = ldma_reader_word(&in);
	}
	if (operations == 4)
		decode_getattr(&in, ret);
	ret->request_bytes = length + (read_length ? padded(ret->count) : 0);
	return !in.is_bad && !in.left && ret->stable <= LDMA_NFS_FILE_SYNC &&
	       (ret->op == LDMA_NFS_OP_WRITE || !read_length) && ret->request_bytes >= length;
}

static uint8_t *w32(uint8_t *p, uint32_t value)
{
	put32(p, value);
	return p + 4;
}

static uint8_t *w64(uint8_t *p, uint64_t value)
{
	put64(p, value);
	return p + 8;
}

/* Writes opaque data and its padding. The padding, which has to be zero, is written first. */
static uint8_t *wbytes(uint8_t *p, const uint8_t *bytes, uint32_t length)
{
	memset(p + (length & ~UINT32_C(3)), 0, padded(length) - (length & ~UINT32_C(3)));
	memcpy(p, bytes, length);
	return p + padded(length);
}

static uint8_t *wtime(uint8_t *p, const struct timespec *time)
{
	p = w64(p, (uint64_t)time->tv_sec);
	return w32(p, (uint32_t)time->tv_nsec);
}

/* Writes the values of attributes, in the order of their numbers (RFC 8881 5). */
static uint8_t *wattributes(uint8_t *p, const uint32_t *asked, const struct stat *stat,
			    uint64_t change)
{
	if (asked[0] & BIT(TYPE))
		p = w32(p, 1); /* NF4REG: there is no grant for anything else */
	if (asked[0] & BIT(CHANGE))
		p = w64(p, change);
	if (asked[0] & BIT(SIZE))
		p = w64(p, (uint64_t)stat->st_size);
	if (asked[0] & BIT(FILEID))
		p = w64(p, stat->st_ino);
	if (asked[1] & BIT(MODE))
		p = w32(p, stat->st_mode & 07777);
	if (asked[1] & BIT(NUMLINKS))
		p = w32(p, (uint32_t)stat->st_nlink);
	if (asked[1] & BIT(SPACE_USED))
		p = w64(p, (uint64_t)stat->st_blocks * 512);
	if (asked[1] & BIT(TIME_ACCESS))
		p = wtime(p, &stat->st_atim);
	if (asked[1] & BIT(TIME_METADATA))
		p = wtime(p, &stat->st_ctim);
	if (asked[1] & BIT(TIME_MODIFY))
		p = wtime(p, &stat->st_mtim);
	return p;
}

static uint8_t *wgetattr(uint8_t *p, const struct ldma_compound *compound,
			 const struct ldma_compound_result *result)
{
	uint32_t words = compound->attributes[1] ? 2 : compound->attributes[0] ? 1 : 0;
	uint8_t *length;

	p = w32(p, LDMA_NFS_OP_GETATTR);
	p = w32(p, result->stat_status);
	if (result->stat_status)
		return p;
	p = w32(p, words);
	for (uint32_t i = 0; i < words; i++)
		p = w32(p, compound->attributes[i]);
	length = p;
	p = wattributes(p + 4, compound->attributes, &result->stat, result->change);
	put32(length, (uint32_t)(p - length) - 4);
	return p;
}

/* Writes what follows the status of READ, WRITE or COMMIT. */
static uint8_t *wresult(uint8_t *p, const struct ldma_compound *compound,
			const struct ldma_compound_result *result, bool is_inline)
{
	switch (compound->op) {
	case LDMA_NFS_OP_READ:
		p = w32(p, result->is_eof);
		p = w32(p, result->count);
		if (is_inline) {
			memset(p + result->count, 0, padded(result->count) - result->count);
			p += padded(result->count);
		}
		return p;
	case LDMA_NFS_OP_WRITE:
		p = w32(p, result->count);
		p = w32(p, result->committed);
		return w64(p, result->verifier);
	default:
		return w64(p, result->verifier);
	}
}

uint32_t ldma_compound_encode(const struct ldma_compound *compound,
			      const struct ldma_compound_result *result, bool is_inline,
			      uint8_t *ret)
{
	bool has_getattr = compound->has_getattr && !result->status;
	uint8_t *p = ret;

	p = w32(p, compound->xid);
	p = w32(p, LDMA_RPC_REPLY);
	p = w32(p, 0); /* accepted */
	p = w32(p, LDMA_RPC_AUTH_NONE);
	p = w32(p, 0);
	p = w32(p, 0); /* success */
	p = w32(p, has_getattr ? result->stat_status : result->status);
	p = w32(p, compound->tag_length);
	p = wbytes(p, compound->tag, compound->tag_length);
	p = w32(p, has_getattr ? 4 : 3);
	p = w32(p, LDMA_NFS_OP_SEQUENCE);
	p = w32(p, LDMA_NFS_OK);
	p = wbytes(p, compound->session_id, LDMA_SESSION_ID_BYTES);
	p = w32(p, compound->sequence.sequence);
	p = w32(p, compound->sequence.slot);
	p = w32(p, result->limits.highest);
	p = w32(p, result->limits.target_highest);
	p = w32(p, result->status_flags);
	p = w32(p, LDMA_NFS_OP_PUTFH);
	p = w32(p, LDMA_NFS_OK);
	p = w32(p, compound->op);
	p = w32(p, result->status);
	if (!result->status)
		p = wresult(p, compound, result, is_inline);
	if (has_getattr)
		p = wgetattr(p, compound, result);
	return (uint32_t)(p - ret);
}

uint32_t ldma_compound_data_at(const struct ldma_compound *compound)
{
	enum { BEFORE_TAG = LDMA_RPC_REPLY_BYTES + 8, SEQUENCE = 44, PUTFH = 8, READ = 16 };

	return BEFORE_TAG + padded(compound->tag_length) + 4 + SEQUENCE + PUTFH + READ;
}
