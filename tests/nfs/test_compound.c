/* SPDX-License-Identifier: BSD-2-Clause */
/* Which calls have the shape, that nothing else does, and the replies byte for byte. */
#include "nfs/opens.h"
#include "tests/nfs/messages.h"

#include <string.h>

#define WORD0 (1u << 3 | 1u << 4)              /* change, size */
#define WORD1 (1u << 13 | 1u << 20 | 1u << 21) /* space_used, time_metadata, time_modify */

static const uint8_t session_id[LDMA_SESSION_ID_BYTES] = "0123456789abcde";
static const uint8_t other[LDMA_OTHER_BYTES] = "stateid-one";
static struct message m;
static struct ldma_compound c;

static bool decode(enum ldma_nfs_op op, const struct asked *asked)
{
	make_message(&m, op, asked);
	return ldma_compound_decode(&c, m.bytes, m.length, 0, 0);
}

static void test_read(void)
{
	struct asked asked = {.xid = 9,
			      .uid = 1000,
			      .tag = "tag",
			      .minor = 2,
			      .session_id = session_id,
			      .sequence = 5,
			      .slot = 3,
			      .highest = 7,
			      .cache_this = 1,
			      .handle = "a file",
			      .other = other,
			      .seqid = 2,
			      .offset = UINT64_C(1) << 40,
			      .count = 4096};

	EXPECT(decode(LDMA_NFS_OP_READ, &asked));
	EXPECT(c.xid == 9 && c.uid == 1000 && c.op == LDMA_NFS_OP_READ && !c.has_getattr);
	EXPECT(c.tag_length == 3 && !memcmp(c.tag, "tag", 3));
	EXPECT(!memcmp(c.session_id, session_id, sizeof(session_id)));
	EXPECT(c.sequence.sequence == 5 && c.sequence.slot == 3 && c.sequence.highest == 7);
	EXPECT(c.sequence.cache_this && !c.sequence.fingerprint);
	EXPECT(c.handle_length == 6 && !memcmp(c.handle, "a file", 6));
	EXPECT(!memcmp(c.other, other, sizeof(other)) && c.seqid == 2);
	EXPECT(c.offset == UINT64_C(1) << 40 && c.count == 4096 && c.request_bytes == m.length);
	asked.is_auth_none = true;
	EXPECT(decode(LDMA_NFS_OP_READ, &asked) && c.uid == LDMA_UID_NONE);
}

static void test_write_in_the_message(void)
{
	struct asked asked = {.count = 5,
			      .data = (const uint8_t *)"hello",
			      .stable = LDMA_NFS_FILE_SYNC,
			      .getattr = 2,
			      .attributes = {WORD0, WORD1}};

	EXPECT(decode(LDMA_NFS_OP_WRITE, &asked));
	EXPECT(c.count == 5 && !memcmp(c.data, "hello", 5) && c.stable == LDMA_NFS_FILE_SYNC);
	EXPECT(c.has_getattr && c.attributes[0] == WORD0 && c.attributes[1] == WORD1);
	EXPECT(c.request_bytes == m.length);
	asked.stable = 3;
	EXPECT(!decode(LDMA_NFS_OP_WRITE, &asked));
}

static void test_write_in_the_chunk(void)
{
	struct asked asked = {.count = 6001, .getattr = 1, .attributes = {WORD0}};
	uint32_t at = make_message(&m, LDMA_NFS_OP_WRITE, &asked);

	EXPECT(ldma_compound_decode(&c, m.bytes, m.length, at, 6001) && !c.data && c.count == 6001);
	EXPECT(c.has_getattr && c.request_bytes == m.length + 6004);
	EXPECT(ldma_compound_decode(&c, m.bytes, m.length, at, 6004));
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, at, 6000));
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, at, 6008));
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, at, UINT64_C(0x100001771)));
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, at - 4, 6001));
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 6001));
	/* Lengths that would not fit 32 bits with their padding. */
	put32(m.bytes + at - 4, UINT32_MAX);
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, at, UINT32_MAX));
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	/* A read chunk of something else than a WRITE. */
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 4, 6001));
}

static void test_commit(void)
{
	struct asked asked = {.offset = 1, .count = 2};

	EXPECT(decode(LDMA_NFS_OP_COMMIT, &asked) && c.op == LDMA_NFS_OP_COMMIT && !c.other);
	EXPECT(c.offset == 1 && c.count == 2);
}

static void test_other_operations_have_no_shape(void)
{
	for (uint32_t op = 0; op < 80; op++) {
		struct asked asked = {0};
		bool is_ours = op == LDMA_NFS_OP_READ || op == LDMA_NFS_OP_WRITE ||
			       op == LDMA_NFS_OP_COMMIT;

		EXPECT(decode(op, &asked) == is_ours);
	}
}

/* Each word of a call that is another than the shape has. */
static void test_words_that_must_be_so(void)
{
	enum { TYPE_AT = 4, RPC_AT = 8, PROGRAM_AT = 12, VERSION_AT = 16, PROCEDURE_AT = 20 };
	static const uint32_t places[] = {TYPE_AT, RPC_AT, PROGRAM_AT, VERSION_AT, PROCEDURE_AT};
	struct asked asked = {0};

	for (uint32_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		EXPECT(decode(LDMA_NFS_OP_READ, &asked));
		m.bytes[places[i] + 3] ^= 0x40;
		EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	}
	asked.minor = 3;
	EXPECT(!decode(LDMA_NFS_OP_READ, &asked));
	asked = (struct asked){.tag = "\xc3\xa4"};
	EXPECT(!decode(LDMA_NFS_OP_READ, &asked));
	asked = (struct asked){.cache_this = 2};
	EXPECT(!decode(LDMA_NFS_OP_READ, &asked));
	asked = (struct asked){.uid = LDMA_UID_NONE};
	EXPECT(!decode(LDMA_NFS_OP_READ, &asked));
}

static void test_minor_version_zero(void)
{
	struct asked asked = {.is_auth_none = true};
	uint32_t minor_at = 24 + 8 + 8 + 4;

	EXPECT(decode(LDMA_NFS_OP_READ, &asked) && get32(m.bytes + minor_at) == 1);
	put32(m.bytes + minor_at, 0);
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	put32(m.bytes + minor_at, 1);
	for (uint32_t operations = 0; operations < 8; operations++) {
		put32(m.bytes + minor_at + 4, operations);
		EXPECT(ldma_compound_decode(&c, m.bytes, m.length, 0, 0) == (operations == 3));
	}
}

static void test_credentials(void)
{
	enum { FLAVOR_AT = 24, LENGTH_AT = 28, GIDS_AT = 52 + 4, VERIFIER_AT = 68 };
	struct asked asked = {0};

	EXPECT(decode(LDMA_NFS_OP_READ, &asked) && get32(m.bytes + GIDS_AT) == 2);
	put32(m.bytes + GIDS_AT, 1); /* fewer than there are bytes for */
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	put32(m.bytes + GIDS_AT, 3);
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	put32(m.bytes + GIDS_AT, 0x40000002); /* times four it is 8 */
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	EXPECT(decode(LDMA_NFS_OP_READ, &asked));
	put32(m.bytes + FLAVOR_AT, 6); /* RPCSEC_GSS */
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	put32(m.bytes + FLAVOR_AT, 0); /* AUTH_NONE with a body */
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
	EXPECT(decode(LDMA_NFS_OP_READ, &asked) && get32(m.bytes + VERIFIER_AT) == 0);
	put32(m.bytes + VERIFIER_AT, 1);
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
}

static void test_attributes(void)
{
	static const uint32_t known[3] = {0x0010001a, 0x0030a00a, 0};

	for (uint32_t bit = 0; bit < 96; bit++) {
		struct asked asked = {.getattr = 3};

		asked.attributes[bit / 32] = 1u << bit % 32;
		EXPECT(decode(LDMA_NFS_OP_READ, &asked) == (known[bit / 32] >> bit % 32 & 1));
	}
	for (uint32_t words = 1; words < 6; words++) {
		struct asked asked = {.attributes = {WORD0, WORD1}};

		add_header(&m, &asked, 4);
		add32(&m, LDMA_NFS_OP_COMMIT);
		add64(&m, 0);
		add32(&m, 0);
		add32(&m, LDMA_NFS_OP_GETATTR);
		add32(&m, words);
		for (uint32_t i = 0; i < words; i++)
			add32(&m, 0);
		EXPECT(ldma_compound_decode(&c, m.bytes, m.length, 0, 0) == (words <= 3));
	}
}

/* No message that is cut short, or has something behind it; padding may be what it wants. */
static void test_lengths(void)
{
	struct asked asked = {.tag = "t",
			      .handle = "h",
			      .count = 5,
			      .data = (const uint8_t *)"hello",
			      .getattr = 2,
			      .attributes = {WORD0, WORD1}};
	uint32_t nonzero = 0;

	EXPECT(decode(LDMA_NFS_OP_WRITE, &asked));
	for (uint32_t length = 0; length < m.length; length++) {
		uint8_t *exact = malloc(length ? length : 1);

		memcpy(exact, m.bytes, length);
		EXPECT(!ldma_compound_decode(&c, exact, length, 0, 0));
		free(exact);
	}
	EXPECT(!ldma_compound_decode(&c, m.bytes, m.length + 4, 0, 0));
	for (uint32_t i = 0; i + 3 < m.length; i++) {
		bool is_padding = !memcmp(m.bytes + i, "t\0\0\0", 4) ||
				  !memcmp(m.bytes + i, "h\0\0\0", 4) ||
				  !memcmp(m.bytes + i, "o\0\0\0", 4);

		if (!is_padding)
			continue;
		m.bytes[i + 2] = 1;
		EXPECT(ldma_compound_decode(&c, m.bytes, m.length, 0, 0));
		m.bytes[i + 2] = 0;
		nonzero++;
	}
	EXPECT(nonzero == 4); /* of the machine, the tag, the handle and the data */
	asked = (struct asked){
		.handle = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
	EXPECT(decode(LDMA_NFS_OP_READ, &asked) && c.handle_length == LDMA_HANDLE_MAX);
	asked.tag = asked.handle; /* longer than what is echoed here */
	EXPECT(!decode(LDMA_NFS_OP_READ, &asked));
}

static struct message expected;

static void expect_head(uint32_t status, const char *tag, uint32_t results)
{
	expected.length = 0;
	add32(&expected, 9);
	add32(&expected, 1);
	for (int i = 0; i < 4; i++)
		add32(&expected, 0);
	add32(&expected, status);
	add_opaque(&expected, tag, (uint32_t)strlen(tag));
	add32(&expected, results);
	add64(&expected, (uint64_t)LDMA_NFS_OP_SEQUENCE << 32);
	add_fixed(&expected, session_id, sizeof(session_id));
	add32(&expected, 5); /* sequence, slot, the table's limits, flags */
	add32(&expected, 3);
	add32(&expected, 15);
	add32(&expected, 7);
	add32(&expected, 0x20);
	add64(&expected, (uint64_t)LDMA_NFS_OP_PUTFH << 32);
}

static void expect_reply(const struct ldma_compound_result *result, bool is_inline)
{
	static uint8_t reply[LDMA_COMPOUND_REPLY_MAX + 8];

	if (is_inline)
		memcpy(reply + ldma_compound_data_at(&c), "hello!!!", 8);
	EXPECT(ldma_compound_encode(&c, result, is_inline, reply) == expected.length);
	EXPECT(!memcmp(reply, expected.bytes, expected.length));
}

static struct ldma_compound_result plain_result(void)
{
	return (struct ldma_compound_result){.limits = {.highest = 15, .target_highest = 7},
					     .status_flags = 0x20,
					     .count = 5,
					     .is_eof = true,
					     .committed = LDMA_NFS_DATA_SYNC,
					     .verifier = UINT64_C(0x0102030405060708)};
}

static void test_replies(void)
{
	struct asked asked = {.xid = 9,
			      .tag = "tagged",
			      .session_id = session_id,
			      .sequence = 5,
			      .slot = 3,
			      .count = 5,
			      .data = (const uint8_t *)"hello"};
	struct ldma_compound_result result = plain_result();

	EXPECT(decode(LDMA_NFS_OP_READ, &asked));
	expect_head(0, "tagged", 3);
	add64(&expected, (uint64_t)LDMA_NFS_OP_READ << 32);
	add32(&expected, 1);
	add32(&expected, 5);
	EXPECT(ldma_compound_data_at(&c) == expected.length);
	expect_reply(&result, false);
	add_fixed(&expected, "hello", 5);
	expect_reply(&result, true);

	EXPECT(decode(LDMA_NFS_OP_WRITE, &asked));
	expect_head(0, "tagged", 3);
	add64(&expected, (uint64_t)LDMA_NFS_OP_WRITE << 32);
	add32(&expected, 5);
	add32(&expected, LDMA_NFS_DATA_SYNC);
	add64(&expected, result.verifier);
	expect_reply(&result, false);

	EXPECT(decode(LDMA_NFS_OP_COMMIT, &asked));
	expect_head(0, "tagged", 3);
	add64(&expected, (uint64_t)LDMA_NFS_OP_COMMIT << 32);
	add64(&expected, result.verifier);
	expect_reply(&result, false);
}

static void test_failed(void)
{
	struct asked asked = {.xid = 9,
			      .tag = "",
			      .session_id = session_id,
			      .sequence = 5,
			      .slot = 3,
			      .getattr = 1,
			      .attributes = {WORD0}};
	struct ldma_compound_result result = plain_result();

	result.status = LDMA_NFS_NOSPC;
	EXPECT(decode(LDMA_NFS_OP_COMMIT, &asked));
	expect_head(LDMA_NFS_NOSPC, "", 3); /* no GETATTR behind it */
	add32(&expected, LDMA_NFS_OP_COMMIT);
	add32(&expected, LDMA_NFS_NOSPC);
	expect_reply(&result, false);
	result.status = LDMA_NFS_OK;
	result.stat_status = LDMA_NFS_IO;
	expect_head(LDMA_NFS_IO, "", 4);
	add64(&expected, (uint64_t)LDMA_NFS_OP_COMMIT << 32);
	add64(&expected, result.verifier);
	add32(&expected, LDMA_NFS_OP_GETATTR);
	add32(&expected, LDMA_NFS_IO);
	expect_reply(&result, false);
}

static void test_attribute_values(void)
{
	struct asked asked = {.xid = 9,
			      .tag = "t",
			      .session_id = session_id,
			      .sequence = 5,
			      .slot = 3,
			      .getattr = 3,
			      .attributes = {0x0010001a, 0x0030a00a, 0}};
	struct ldma_compound_result result = plain_result();

	result.stat = (struct stat){.st_mode = S_IFREG | 04755,
				    .st_nlink = 3,
				    .st_size = 1 << 20,
				    .st_ino = 1234,
				    .st_blocks = 16,
				    .st_atim = {-1, 2},
				    .st_mtim = {5, 6},
				    .st_ctim = {3, 4}};
	result.change = UINT64_C(1) << 60;
	EXPECT(decode(LDMA_NFS_OP_COMMIT, &asked));
	expect_head(0, "t", 4);
	add64(&expected, (uint64_t)LDMA_NFS_OP_COMMIT << 32);
	add64(&expected, result.verifier);
	add64(&expected, (uint64_t)LDMA_NFS_OP_GETATTR << 32);
	add32(&expected, 2); /* as few words as the attributes need */
	add32(&expected, 0x0010001a);
	add32(&expected, 0x0030a00a);
	add32(&expected, 80);
	add32(&expected, 1); /* a regular file */
	add64(&expected, UINT64_C(1) << 60);
	add64(&expected, 1 << 20);
	add64(&expected, 1234);
	add32(&expected, 04755);
	add32(&expected, 3);
	add64(&expected, 8192);
	add64(&expected, UINT64_MAX);
	add32(&expected, 2);
	add64(&expected, 3);
	add32(&expected, 4);
	add64(&expected, 5);
	add32(&expected, 6);
	expect_reply(&result, false);
	asked = (struct asked){.xid = 9,
			       .tag = "t",
			       .session_id = session_id,
			       .sequence = 5,
			       .slot = 3,
			       .getattr = 1};
	EXPECT(decode(LDMA_NFS_OP_COMMIT, &asked));
	expect_head(0, "t", 4);
	add64(&expected, (uint64_t)LDMA_NFS_OP_COMMIT << 32);
	add64(&expected, result.verifier);
	add64(&expected, (uint64_t)LDMA_NFS_OP_GETATTR << 32);
	add64(&expected, 0); /* nothing asked for, nothing given */
	expect_reply(&result, false);
}

int main(void)
{
	test_read();
	test_write_in_the_message();
	test_write_in_the_chunk();
	test_commit();
	test_other_operations_have_no_shape();
	test_words_that_must_be_so();
	test_minor_version_zero();
	test_credentials();
	test_attributes();
	test_lengths();
	test_replies();
	test_failed();
	test_attribute_values();
	return 0;
}
