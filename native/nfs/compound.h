/* SPDX-License-Identifier: BSD-2-Clause */
/* The COMPOUNDs that need no Python: SEQUENCE, PUTFH, then READ, WRITE or COMMIT, and perhaps GETATTR of what fstat
 * knows.
 *
 * That is what Linux sends for data (fs/nfs/nfs4xdr.c): READ and COMMIT alone, WRITE with GETATTR of change, size,
 * space_used and times. Sans-I/O: a message goes in, a reply comes out. Whatever is not of that shape, or not quite
 * right, is left to Python, which can say what is wrong with it. */
#ifndef LDMA_COMPOUND_H
#define LDMA_COMPOUND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "nfs/slots.h"
#include "wire/nfs.h"

#define LDMA_TAG_MAX 64
#define LDMA_RPC_REPLY_BYTES 24     /* before the results of a COMPOUND */
#define LDMA_COMPOUND_REPLY_MAX 384 /* without data */

/* A call; its pointers point into the message. */
struct ldma_compound {
	uint32_t xid;
	uint32_t uid; /* LDMA_UID_NONE of AUTH_NONE */
	const uint8_t *tag;
	uint32_t tag_length;
	const uint8_t *session_id;
	struct ldma_sequence sequence; /* without fingerprint: not all of the request is here */
	const uint8_t *handle;
	uint32_t handle_length;
	enum ldma_nfs_op op;
	const uint8_t *other; /* of READ and WRITE */
	uint32_t seqid;
	uint64_t offset;
	uint32_t count;
	enum ldma_nfs_stable stable;
	const uint8_t *data; /* of WRITE; NULL: in the read chunk */
	bool has_getattr;
	uint32_t attributes[2];
	uint32_t request_bytes; /* with the data, as it would be on a stream */
};

/* Decodes a call, and returns whether it has the shape. read_position, read_length: of the read chunk, as in call.h. */
bool ldma_compound_decode(struct ldma_compound *ret, const uint8_t *message, uint32_t length,
			  uint32_t read_position, uint64_t read_length);

struct ldma_compound_result {
	struct ldma_slots_limits limits;
	uint32_t status_flags;
	enum ldma_nfs_status status; /* of READ, WRITE or COMMIT; unless OK, nothing follows */
	uint32_t count;
	bool is_eof;
	enum ldma_nfs_stable committed;
	uint64_t verifier;                /* of WRITE and COMMIT */
	enum ldma_nfs_status stat_status; /* of GETATTR */
	struct stat stat;
	uint64_t change;
};

/* Writes the reply and returns its length; ret has room for LDMA_COMPOUND_REPLY_MAX. is_inline: the data of a READ is
 * in ret already, at ldma_compound_data_at, with further room for it and its padding; otherwise the data goes
 * elsewhere. */
uint32_t ldma_compound_encode(const struct ldma_compound *compound,
			      const struct ldma_compound_result *result, bool is_inline,
			      uint8_t *ret);

/* Returns where the data of a READ begins in its reply. */
uint32_t ldma_compound_data_at(const struct ldma_compound *compound);

#endif
