/* SPDX-License-Identifier: BSD-2-Clause */
/* A requester's headers of RPC-over-RDMA version 1 (RFC 8166): it encodes those of its calls and decodes those of
 * replies. */
#ifndef LDMA_CALLER_HEADER_H
#define LDMA_CALLER_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_CALLER_HEADER_MAX 120 /* with all chunks that a call may have */

/* Memory of ours that the peer may use; length 0: none. */
struct ldma_segment {
	uint32_t key, length;
	uint64_t va;
};

struct ldma_call_header {
	uint32_t xid, credits;
	struct ldma_segment message; /* where the message is if it is not behind the header */
	struct ldma_segment read;    /* data that belongs at position of the message */
	uint32_t position;
	struct ldma_segment write, reply; /* where data and a long reply may be placed */
};

/* Writes the header and returns its length. */
uint32_t ldma_call_header_encode(const struct ldma_call_header *header, uint8_t *ret);

enum ldma_reply_kind {
	LDMA_REPLY_INLINE, /* the RPC message follows the header */
	LDMA_REPLY_LONG,   /* it is in the reply chunk */
	LDMA_REPLY_BAD_CALL, /* RDMA_ERROR: the peer does not understand our header, or cannot answer in what it offers */
	LDMA_REPLY_BAD_CHUNKS, /* it claims what was not offered */
	LDMA_REPLY_MALFORMED,  /* it cannot be decoded */
};

struct ldma_reply_header {
	uint32_t length;       /* of the header */
	uint32_t placed;       /* bytes in the write chunk */
	uint32_t reply_length; /* bytes in the reply chunk */
};

/* Reads the XID and the granted credits of a message. Returns false if it does not begin like a header. */
bool ldma_reply_header_peek(const uint8_t *data, uint32_t length, uint32_t *ret_xid,
			    uint32_t *ret_credits);

/* Decodes the header of a reply to a call that offered write and reply. */
enum ldma_reply_kind ldma_reply_header_decode(const uint8_t *data, uint32_t length,
					      const struct ldma_segment *write,
					      const struct ldma_segment *reply,
					      struct ldma_reply_header *ret);

#endif
