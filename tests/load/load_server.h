/* SPDX-License-Identifier: BSD-2-Clause */
/* A server of one file for tests of the load: answers READ and WRITE as they are encoded there, with AUTH_NONE. */
#ifndef LDMA_TEST_LOAD_SERVER_H
#define LDMA_TEST_LOAD_SERVER_H

#include "base/bytes.h"
#include "load/io_call.h"

#define SERVER_SIZE 4096
#define SERVER_BLOCKS 8
#define SERVER_REPLY_MOST (160 + SERVER_SIZE)

enum { OP_AT = 104, OFFSET_AT = 124, READ_COUNT_AT = 132, WRITE_COUNT_AT = 136, DATA_AT = 140 };

static const struct ldma_io_target server_target = {
	.session = "session of tests",
	.stateid = "the open's state",
	.handle = "the file",
	.handle_length = 8,
	.credential_length = 16,
};

struct server {
	uint8_t file[SERVER_SIZE * SERVER_BLOCKS];
	uint32_t target;
};

static inline uint8_t *server_word(uint8_t *at, uint32_t word)
{
	put32(at, word);
	return at + 4;
}

/* Returns the length. places: the data of a READ is left to the caller. */
static inline uint32_t server_reply(struct server *server, const uint8_t *call, bool has_data,
				    bool places, uint8_t *ret)
{
	bool is_write = get32(call + OP_AT) == LDMA_NFS_OP_WRITE;
	uint64_t offset = get64(call + OFFSET_AT) % sizeof(server->file);
	uint32_t count = get32(call + (is_write ? WRITE_COUNT_AT : READ_COUNT_AT));
	const uint32_t head[] = {1, 0, 0, 0, 0, 0, 0, 3, LDMA_NFS_OP_SEQUENCE, 0};
	uint8_t *at = ret;

	if (count > sizeof(server->file) - offset)
		count = (uint32_t)(sizeof(server->file) - offset);
	memcpy(at, call, 4);
	at += 4;
	for (uint32_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		at = server_word(at, head[i]);
	memcpy(at, server_target.session, 16);
	memcpy(at + 16, call + 72, 8); /* sequence, slot */
	at = server_word(at + 24, 63);
	at = server_word(at, server->target);
	at = server_word(at, 0);
	at = server_word(server_word(at, LDMA_NFS_OP_PUTFH), 0);
	at = server_word(server_word(at, is_write ? LDMA_NFS_OP_WRITE : LDMA_NFS_OP_READ), 0);
	if (is_write) {
		if (has_data)
			memcpy(server->file + offset, call + DATA_AT, count);
		at = server_word(server_word(at, count), 0);
		memset(at, 7, 8);
		return (uint32_t)(at + 8 - ret);
	}
	at = server_word(server_word(at, 0), count);
	if (places)
		return (uint32_t)(at - ret);
	memcpy(at, server->file + offset, count);
	return (uint32_t)(at + count - ret);
}

#endif
