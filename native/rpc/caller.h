/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's side of RPC-over-RDMA (RFC 8166) on a queue pair that is connected.
 *
 * It has neither thread nor memory of its own: the thread that polls the queue's completions shows them to
 * ldma_caller_complete and sends calls when there is room for them. Calls are numbered from 0 to calls - 1 while they
 * are open, and their XIDs are the caller's. No more are open than the peer has granted, one before its first reply.
 * What a peer says is believed only as far as it was asked for: a reply that claims more ends its call, and one that
 * cannot be decoded ends the connection. */
#ifndef LDMA_CALLER_H
#define LDMA_CALLER_H

#include "base/bytes.h"
#include "device/qp.h"
#include "rpc/caller_header.h"

#define LDMA_CALLER_MOST 4096 /* calls at a time */
#define LDMA_CALLER_SPARE 8   /* Receives for messages that are no replies */

struct ldma_caller_config {
	struct ldma_qp *qp; /* takes as many Receives as ldma_caller_receives says */
	uint32_t calls; /* the most that are open at a time; also the credits that are asked for */
	uint32_t send_bytes, receive_bytes; /* inline thresholds, with the header */
	/* Memory that peers must have no rights to, of ldma_caller_bytes bytes, 8-byte aligned. */
	uint8_t *memory;
	uint64_t va;
	uint32_t lkey;
	uint32_t tag;       /* upper half of the wr_ids */
	uint32_t first_xid; /* random */
};

struct ldma_caller_counters {
	uint64_t calls, replies;
	uint64_t strays;  /* messages that answer no call */
	uint64_t errors;  /* RDMA_ERROR */
	uint64_t refused; /* replies that claim what was not offered */
};

struct ldma_caller_slot {
	struct ldma_segment write, reply;
	uint64_t user;
	uint32_t xid;
	bool is_open;
};

struct ldma_caller {
	struct ldma_caller_config config;
	struct ldma_caller_slot *slots;
	uint32_t
		*free; /* a stack of their numbers: the last one used has its memory in the cache */
	uint32_t free_count, open, granted, peak;
	uint32_t send_limit; /* what the peer takes, up to send_bytes */
	uint32_t xid_step;   /* calls so far, in the upper bits of XIDs */
	int error;           /* 0, or why the connection is of no use: -ECONNRESET, -EPROTO */
	uint8_t status;      /* with -ECONNRESET: of the completion that reported it */
	struct ldma_caller_counters counters;
};

struct ldma_request {
	const uint8_t *message; /* an RPC call from its XID on, whose value does not matter */
	uint32_t length;
	/* For a message too long to be sent inline: memory that holds it already, with the XID of ldma_caller_xid. */
	struct ldma_segment message_chunk;
	struct ldma_segment read;
	uint32_t position;
	struct ldma_segment write, reply;
	uint64_t user;
};

enum ldma_caller_event { LDMA_CALLER_NOTHING, LDMA_CALLER_ENDED, LDMA_CALLER_BROKEN };

/* The end of a call. error: 0; -EREMOTEIO: RDMA_ERROR; -EBADMSG: the reply has chunks that were not offered. */
struct ldma_answer {
	uint64_t user;
	uint32_t number, xid;
	int error;
	const uint8_t
		*message; /* the RPC reply; NULL: its reply_length bytes are in the reply chunk */
	uint32_t length;
	uint32_t placed;
	uint32_t reply_length;
	bool has_receive; /* receive is to be given back once the message was read */
	uint32_t receive;
};

static inline uint32_t ldma_caller_receives(uint32_t calls)
{
	return calls + LDMA_CALLER_SPARE;
}

/* Returns the bytes of memory that a caller needs. */
uint64_t ldma_caller_bytes(uint32_t calls, uint32_t send_bytes, uint32_t receive_bytes);

/* Makes a caller, and posts nothing. Returns 0, -EINVAL or -ENOMEM. */
int ldma_caller_init(struct ldma_caller *caller, const struct ldma_caller_config *config);
void ldma_caller_destroy(struct ldma_caller *caller);

/* Posts the Receives. The thread that owns the device calls it once, before the peer may send. Returns 0 or a negative
 * error of posting. */
int ldma_caller_prepare(struct ldma_caller *caller);

/* Limits SENDs to what the peer takes. Returns 0, or -EINVAL: too short for any call. */
int ldma_caller_limit(struct ldma_caller *caller, uint32_t send_bytes);

/* Takes the number of a call, for ldma_caller_post. Returns it, -EAGAIN (the peer has granted no more) or -ENOTCONN. */
int ldma_caller_take(struct ldma_caller *caller);

/* Gives such a number back without a call. */
void ldma_caller_drop(struct ldma_caller *caller, uint32_t number);

/* Returns the XID that the call of that number will have. */
uint32_t ldma_caller_xid(const struct ldma_caller *caller, uint32_t number);

/* Returns the most bytes of a call with such chunks that can be sent inline. */
uint32_t ldma_caller_inline_room(const struct ldma_caller *caller,
				 const struct ldma_request *request);

/* Sends a call. The thread that owns the device calls it. Returns 0; or, with the call not open, -EAGAIN: the queue is
 * full until the peer has acknowledged more; -EMSGSIZE: too long, without message_chunk. */
int ldma_caller_post(struct ldma_caller *caller, uint32_t number,
		     const struct ldma_request *request);

/* Handles a completion of the queue pair. ret->has_receive tells in any case whether a Receive is to be given back. */
enum ldma_caller_event ldma_caller_complete(struct ldma_caller *caller, const struct ldma_wc *wc,
					    struct ldma_answer *ret);

/* Posts a Receive again. The thread that owns the device calls it. */
int ldma_caller_release(struct ldma_caller *caller, uint32_t receive);

/* After LDMA_CALLER_BROKEN: ends one call that is still open. Returns false if there is none. */
bool ldma_caller_end_one(struct ldma_caller *caller, struct ldma_answer *ret);

#endif
