/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of the shapes that need no Python, as a client encodes them. */
#ifndef LDMA_TEST_MESSAGES_H
#define LDMA_TEST_MESSAGES_H

#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "nfs/compound.h"
#include "tests/base/expect.h"

struct message {
	uint8_t bytes[9000];
	uint32_t length;
};

static inline void add32(struct message *m, uint32_t value)
{
	EXPECT(m->length + 4 <= sizeof(m->bytes));
	put32(m->bytes + m->length, value);
	m->length += 4;
}

static inline void add64(struct message *m, uint64_t value)
{
	add32(m, (uint32_t)(value >> 32));
	add32(m, (uint32_t)value);
}

static inline void add_fixed(struct message *m, const void *bytes, uint32_t length)
{
	uint32_t padded = (length + 3) & ~3u;

	EXPECT(m->length + padded <= sizeof(m->bytes));
	memset(m->bytes + m->length, 0, padded);
	memcpy(m->bytes + m->length, bytes, length);
	m->length += padded;
}

static inline void add_opaque(struct message *m, const void *bytes, uint32_t length)
{
	add32(m, length);
	add_fixed(m, bytes, length);
}

/* What a call asks for; zeros and NULLs are what a plain one has. */
struct asked {
	uint32_t xid;
	bool is_auth_none;
	uint32_t uid;
	const char *tag;
	uint32_t minor; /* 0: 1 */
	const uint8_t *session_id;
	uint32_t sequence, slot, highest, cache_this;
	const char *handle;
	const uint8_t *other; /* 12 bytes */
	uint32_t seqid;
	uint64_t offset;
	uint32_t count;
	uint32_t stable;
	const uint8_t *data; /* of a WRITE, within the message */
	uint32_t getattr;    /* words of its bitmap; 0: none */
	uint32_t attributes[3];
};

static inline void add_header(struct message *m, const struct asked *asked, uint32_t operations)
{
	static const uint8_t no_session[LDMA_SESSION_ID_BYTES];
	const char *tag = asked->tag ? asked->tag : "";
	const char *handle = asked->handle ? asked->handle : "handle";

	*m = (struct message){.length = 0};
	add32(m, asked->xid);
	add32(m, 0); /* CALL */
	add32(m, 2);
	add32(m, 100003);
	add32(m, 4);
	add32(m, 1);
	if (asked->is_auth_none) {
		add64(m, 0);
	} else {
		add32(m, 1); /* AUTH_SYS */
		add32(m, 4 + 4 + 8 + 4 + 4 + 4 + 8);
		add32(m, 77); /* stamp */
		add_opaque(m, "client", 6);
		add32(m, asked->uid);
		add32(m, 100);
		add32(m, 2);
		add64(m, 0x0000000100000002);
	}
	add64(m, 0); /* verifier */
	add_opaque(m, tag, (uint32_t)strlen(tag));
	add32(m, asked->minor ? asked->minor : 1);
	add32(m, operations);
	add32(m, LDMA_NFS_OP_SEQUENCE);
	add_fixed(m, asked->session_id ? asked->session_id : no_session, LDMA_SESSION_ID_BYTES);
	add32(m, asked->sequence);
	add32(m, asked->slot);
	add32(m, asked->highest);
	add32(m, asked->cache_this);
	add32(m, LDMA_NFS_OP_PUTFH);
	add_opaque(m, handle, (uint32_t)strlen(handle));
}

static inline void add_getattr(struct message *m, const struct asked *asked)
{
	if (!asked->getattr)
		return;
	add32(m, LDMA_NFS_OP_GETATTR);
	add32(m, asked->getattr);
	for (uint32_t i = 0; i < asked->getattr; i++)
		add32(m, asked->attributes[i]);
}

/* read_position: where the data of a WRITE belongs that is in a read chunk. */
static inline uint32_t make_message(struct message *m, enum ldma_nfs_op op,
				    const struct asked *asked)
{
	static const uint8_t no_other[12];
	uint32_t read_position = 0;

	add_header(m, asked, asked->getattr ? 4 : 3);
	add32(m, op);
	if (op != LDMA_NFS_OP_COMMIT) {
		add32(m, asked->seqid);
		add_fixed(m, asked->other ? asked->other : no_other, 12);
	}
	add64(m, asked->offset);
	if (op == LDMA_NFS_OP_WRITE) {
		add32(m, asked->stable);
		add32(m, asked->count);
		read_position = m->length;
		if (asked->data)
			add_fixed(m, asked->data, asked->count);
	} else {
		add32(m, asked->count);
	}
	add_getattr(m, asked);
	return read_position;
}

#endif
