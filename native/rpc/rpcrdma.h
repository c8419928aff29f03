/* SPDX-License-Identifier: BSD-2-Clause */
/* RPC-over-RDMA version 1 (RFC 8166): the header in front of each RPC message, and its rules. It is sans-I/O, and
 * bounded: limits on what a header may ask for apply before anything is done. */
#ifndef LDMA_RPCRDMA_H
#define LDMA_RPCRDMA_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/rpc.h"

#define LDMA_RPCRDMA_CHUNKS 16      /* the most chunks of a list that limits can allow */
#define LDMA_RPCRDMA_SEGMENTS 256   /* and the most segments of all lists together */
#define LDMA_RPCRDMA_FIXED_BYTES 28 /* of a header whose lists are empty */
#define LDMA_RPCRDMA_ERROR_BYTES 28 /* the most that an RDMA_ERROR takes */

struct ldma_rpcrdma_limits {
	uint32_t chunks;     /* of the read list, and of the write list */
	uint32_t segments;   /* of all lists together */
	uint64_t list_bytes; /* of the segments of one list */
};

/* A range of the requester's memory. */
struct ldma_rpcrdma_segment {
	uint64_t offset;
	uint32_t handle, length;
};

/* The segments first to first + count - 1 of the header. */
struct ldma_rpcrdma_chunk {
	uint32_t position; /* of a read chunk: where in the message it belongs */
	uint32_t first, count;
	uint64_t length;
};

struct ldma_rpcrdma {
	uint32_t xid, version, credits;
	uint32_t proc;            /* enum ldma_rpcrdma_proc */
	uint32_t error;           /* of RDMA_ERROR: enum ldma_rpcrdma_error */
	uint32_t lowest, highest; /* versions, with ERR_VERS */
	uint32_t header_bytes;
	uint32_t read_count, write_count, segment_count;
	bool has_reply;
	struct ldma_rpcrdma_segment *segments;
	struct ldma_rpcrdma_chunk reads[LDMA_RPCRDMA_CHUNKS]; /* in the order of positions */
	struct ldma_rpcrdma_chunk writes[LDMA_RPCRDMA_CHUNKS];
	struct ldma_rpcrdma_chunk reply;
};

/* Decodes the header that data starts with. Segments go to `segments`, which has room for `room` of them. Returns 0;
 * -EPROTO: a rule is broken (ERR_CHUNK); -EPROTONOSUPPORT: another version (ERR_VERS); -ENOSPC: there are more
 * segments, at most ret->segment_count, and a second call with that room succeeds. Only RDMA_MSG and RDMA_NOMSG have
 * lists. */
int ldma_rpcrdma_decode(const uint8_t *data, uint32_t length,
			const struct ldma_rpcrdma_limits *limits,
			struct ldma_rpcrdma_segment *segments, uint32_t room,
			struct ldma_rpcrdma *ret);

/* Returns the bytes that ldma_rpcrdma_encode writes for it. */
uint32_t ldma_rpcrdma_bytes(const struct ldma_rpcrdma *header);

/* Writes the header of an RDMA_MSG or RDMA_NOMSG. */
void ldma_rpcrdma_encode(const struct ldma_rpcrdma *header, uint8_t *ret);

/* Returns the bytes of the header of a reply to a call; is_long: the reply goes by the reply chunk. */
uint32_t ldma_rpcrdma_reply_bytes(const struct ldma_rpcrdma *call, bool is_long);

/* Writes the header of a reply: its write list is the call's with data_bytes in the first chunk and nothing in others
 * (section 4.3.2); is_long: RDMA_NOMSG with reply_bytes in the reply chunk. */
void ldma_rpcrdma_encode_reply(const struct ldma_rpcrdma *call, uint32_t credits,
			       uint64_t data_bytes, bool is_long, uint64_t reply_bytes,
			       uint8_t *ret);

/* Writes an RDMA_ERROR for a call whose first 8 bytes are at data. Returns its length. */
uint32_t ldma_rpcrdma_encode_error(const uint8_t *data, uint32_t credits,
				   enum ldma_rpcrdma_error error, uint8_t *ret);

/* Returns whether to answer a header that decode refused: not if it is an RDMA_ERROR, or does not name its call. */
bool ldma_rpcrdma_is_answered(const uint8_t *data, uint32_t length);

/* Returns the key that all segments have; 0 if there are none, or they differ. */
uint32_t ldma_rpcrdma_only_handle(const struct ldma_rpcrdma *header);

#endif
