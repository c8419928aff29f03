/* The client's side of RPC-over-RDMA (RFC 8166) on a queue pair that is connected.
 *
 * It has neither thread nor memory of its own: whoever polls the queue's completions shows them to ldma_caller_complete and
 * sends calls when there is room for them. Calls are numbered from 0 to calls - 1 while they are open, and their XIDs are
 * the caller's. No more are open than the peer has granted, one before its first reply. What a peer says is believed only
 * as far as it was asked for: a reply that claims more ends its call, one that nobody understands the connection. */
#ifndef LDMA_CALLER_H
#define LDMA_CALLER_H

#include "bytes.h"
#include "caller_header.h"
#include "qp.h"

#define LDMA_CALLER_MOST 4096 /* calls at a time */
#define LDMA_CALLER_SPARE 8   /* Receives for what is no reply */

struct ldma_caller_config {
	struct ldma_qp *qp; /* takes as many Receives as ldma_caller_receives says */
	uint32_t calls;     /* open at a time, at most; also the credits that are asked for */
	uint32_t send_bytes, receive_bytes; /* inline thresholds, with the header */
	/* Memory that peers must have no rights to, as ldma_caller_bytes says, 8-byte aligned. */
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
	uint8_t status;      /* with -ECONNRESET, of the completion that told */
	struct ldma_caller_counters counters;
};

struct ldma_request {
	const uint8_t *message; /* an RPC call from its XID on, whose value does not matter */
	uint32_t length;
	/* If it is too long to be sent inline: memory that has it already, its XID as ldma_caller_xid says. */
	struct ldma_segment message_chunk;
	struct ldma_segment read;
	uint32_t position;
	struct ldma_segment write, reply;
	uint64_t user;
};

enum ldma_caller_event { LDMA_CALLER_NOTHING, LDMA_CALLER_ENDED, LDMA_CALLER_BROKEN };

/* How a call ended. error: 0; -EREMOTEIO: RDMA_ERROR; -EBADMSG: chunks that were not offered. */
struct ldma_answer {
	uint64_t user;
	uint32_t number, xid;
	int error;
	const uint8_t
		*message; /* the RPC reply; NULL: its reply_length bytes are in the reply chunk */
	uint32_t length;
	uint32_t placed;
	uint32_t reply_length;
	bool has_receive; /* to be given back, as receive, when the message was read */
	uint32_t receive;
};

static inline uint32_t ldma_caller_receives(uint32_t calls)
{
	return calls + LDMA_CALLER_SPARE;
}

/* Bytes that its memory has to have. */
uint64_t ldma_caller_bytes(uint32_t calls, uint32_t send_bytes, uint32_t receive_bytes);

/* 0, -EINVAL or -ENOMEM. Posts nothing. */
int ldma_caller_init(struct ldma_caller *caller, const struct ldma_caller_config *config);
void ldma_caller_destroy(struct ldma_caller *caller);

/* Posts the Receives, by the owner of the device, once, before the peer may send. 0 or a negative error of posting. */
int ldma_caller_prepare(struct ldma_caller *caller);

/* The peer takes no longer SENDs than these. 0, or -EINVAL: too short for any call. */
int ldma_caller_limit(struct ldma_caller *caller, uint32_t send_bytes);

/* Takes the number of a call, for ldma_caller_post; -EAGAIN: the peer has granted no more; -ENOTCONN. */
int ldma_caller_take(struct ldma_caller *caller);

/* Gives it back instead. */
void ldma_caller_drop(struct ldma_caller *caller, uint32_t number);

/* What the XID of that call will be. */
uint32_t ldma_caller_xid(const struct ldma_caller *caller, uint32_t number);

/* Bytes that a call with such chunks may have to be sent inline. */
uint32_t ldma_caller_inline_room(const struct ldma_caller *caller,
				 const struct ldma_request *request);

/* Sends it, by the owner of the device. 0; with the call not open, -EAGAIN: the queue is full until the peer has
 * acknowledged more; -EMSGSIZE: too long, without message_chunk. */
int ldma_caller_post(struct ldma_caller *caller, uint32_t number,
		     const struct ldma_request *request);

/* A completion of the queue pair. ret->has_receive tells in any case whether a Receive is to be given back. */
enum ldma_caller_event ldma_caller_complete(struct ldma_caller *caller, const struct ldma_wc *wc,
					    struct ldma_answer *ret);

/* Posts the Receive again, by the owner of the device. */
int ldma_caller_release(struct ldma_caller *caller, uint32_t receive);

/* After LDMA_CALLER_BROKEN: ends one call that is still open. False if there is none. */
bool ldma_caller_end_one(struct ldma_caller *caller, struct ldma_answer *ret);

#endif
