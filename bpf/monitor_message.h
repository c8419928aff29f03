/* Reading RPC-over-RDMA messages (RFC 8166) and what NFSv4.1 puts into them (RFC 8881), from the first bytes of a SEND.
 *
 * Calls:   SEQUENCE's session and, behind SEQUENCE and PUTFH, READ or WRITE. Replies: the same, with what was read or
 * written. Everything is bounded, and whatever is not as expected ends the walk: what was found until then counts. */
#ifndef LDMA_MONITOR_MESSAGE_H
#define LDMA_MONITOR_MESSAGE_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "monitor_scratch.h"
#include "monitor_tables.h"

#define LOOK_BYTES 528 /* of a segment, from its BTH on, that are looked at */
#define RPCRDMA_SHORTEST_BYTES 16
#define RPCRDMA_FIXED_BYTES 28 /* of a header with lists that are empty */
#define SEGMENTS_MOST 16
#define RESULTS_MOST 3
#define SEQUENCE_ARGS_BYTES 32
#define SEQUENCE_RESULT_BYTES 36
#define WRITE_ARGS_BYTES 32 /* stateid, offset, stability, count */
/* A reply without tag to a COMPOUND whose SEQUENCE worked; with one that failed it is shorter. */
#define SEQUENCE_REPLY_BYTES 80

enum { RPCRDMA_MSG, RPCRDMA_NOMSG, RPCRDMA_MSGP, RPCRDMA_DONE, RPCRDMA_ERROR };
enum { RPC_CALL, RPC_REPLY };
enum { AUTH_NONE, AUTH_SYS };
enum { NFS_PROGRAM = 100003, NFS_COMPOUND = 1, NFS_V4 = 4 };
enum { OP_PUTFH = 22, OP_READ = 25, OP_WRITE = 38, OP_SEQUENCE = 53 };

/* A message in the window: where the walk through it stands, and where it, or what is looked at of it, ends. */
struct message {
	const __u8 *window;
	__u32 at, end;
};

struct rpcrdma {
	__u32 xid, credits, proc;
	__u32 read_bytes;  /* of the read list, without a message that comes by it */
	__u32 write_bytes; /* of the write list */
	__u32 reply_bytes; /* of the reply chunk */
};

/* Whether so many bytes follow. Where the message, or what is looked at of it, ends, walks end. */
static __always_inline bool has(const struct message *message, __u32 bytes)
{
	return message->at + bytes <= message->end;
}

/* What stands so many bytes ahead, up to PEEK_MOST, which has to be there. The mask is for the verifier, and before the
 * addition for speed: it is the same for all that is read from where the walk stands. */
static __always_inline const void *ahead_of(const struct message *message, __u32 ahead)
{
	return message->window + (message->at & (WINDOW_BYTES - 1)) + ahead;
}

static __always_inline __u32 peek(const struct message *message, __u32 ahead)
{
	return bpf_ntohl(*(const __be32 *)ahead_of(message, ahead));
}

static __always_inline bool take(struct message *message, __u32 *ret)
{
	if (!has(message, 4))
		return false;
	*ret = peek(message, 0);
	message->at += 4;
	return true;
}

/* Behind fixed bytes and an opaque of that many. */
static __always_inline bool skip(struct message *message, __u32 fixed, __u32 opaque)
{
	if (opaque > LOOK_BYTES)
		return false;
	message->at += fixed + ((opaque + 3) & ~3u);
	return message->at <= message->end;
}

static __always_inline void peek_id(const struct message *message, __u64 ret[2])
{
	const __u64 *id = ahead_of(message, 0);

	ret[0] = id[0];
	ret[1] = id[1];
}

/* The segments of a chunk, and their bytes together. */
static __always_inline bool take_chunk(struct message *message, __u32 *bytes)
{
	__u32 count;

	if (!take(message, &count) || count > SEGMENTS_MOST || !has(message, 16 * count))
		return false;
	for (__u32 i = 0; i < SEGMENTS_MOST && i < count; i++) {
		*bytes += peek(message, 4);
		message->at += 16;
	}
	return true;
}

/* Reads the header, its lists as far as they can be, and stands behind it then. Returns 1 if an RPC message follows; 0:
 * there is none, or it is too far behind; negative: this is no header of version 1. */
static __always_inline int read_header(struct message *message, struct rpcrdma *ret)
{
	__u32 more;

	if (!has(message, RPCRDMA_SHORTEST_BYTES))
		return -1;
	ret->xid = peek(message, 0);
	ret->credits = peek(message, 8);
	ret->proc = peek(message, 12);
	ret->read_bytes = ret->write_bytes = ret->reply_bytes = 0;
	if (peek(message, 4) != 1 || ret->proc > RPCRDMA_ERROR || ret->proc == RPCRDMA_MSGP)
		return -1;
	if (ret->proc > RPCRDMA_NOMSG)
		return 0;
	if (!has(message, RPCRDMA_FIXED_BYTES))
		return -1;
	message->at += RPCRDMA_SHORTEST_BYTES;
	for (int i = 0; i < SEGMENTS_MOST && has(message, 24) && peek(message, 0); i++) {
		if (peek(message, 4)) /* position 0 has the message itself */
			ret->read_bytes += peek(message, 12);
		message->at += 24;
	}
	/* One write chunk is all that NFS offers for a READ; what has more is counted by its first. */
	if (!take(message, &more) || more || !take(message, &more))
		return 0;
	if (more && (!take_chunk(message, &ret->write_bytes) || !take(message, &more) || more))
		return 0;
	if (!take(message, &more) || (more && !take_chunk(message, &ret->reply_bytes)))
		return 0;
	return ret->proc == RPCRDMA_MSG;
}

/* What a call tells of itself. */
struct seen_call {
	__u64 id[2];
	__u32 has_id;
	__u32 kind;  /* enum ldma_monitor_kind */
	__u32 bytes; /* of a WRITE */
	__u32 tag_bytes;
};

/* Reads an RPC message. false: it is no call. */
static __always_inline bool read_call(struct message *message, struct seen_call *ret)
{
	__u32 flavour, operation;

	/* xid, direction, version of RPC, program, its version, procedure, credential's flavour and length */
	if (!has(message, 32))
		return true;
	if (peek(message, 4) != RPC_CALL)
		return false;
	ret->kind = LDMA_MONITOR_FOREIGN;
	if (peek(message, 12) != NFS_PROGRAM || peek(message, 16) != NFS_V4 ||
	    peek(message, 20) != NFS_COMPOUND)
		return true;
	ret->kind = LDMA_MONITOR_OTHER;
	flavour = peek(message, 24);
	if (flavour > AUTH_SYS || !skip(message, 32, peek(message, 28)))
		return true;
	if (!has(message, 8) || !skip(message, 8, peek(message, 4))) /* the verifier */
		return true;
	if (!has(message, 4))
		return true;
	ret->tag_bytes = peek(message, 0);
	/* the tag; minor version, number of operations */
	if (!skip(message, 4 + 8, ret->tag_bytes) || !take(message, &operation))
		return true;
	if (operation == OP_SEQUENCE) {
		if (!has(message, SEQUENCE_ARGS_BYTES + 4))
			return true;
		peek_id(message, ret->id);
		ret->has_id = 1;
		operation = peek(message, SEQUENCE_ARGS_BYTES);
		message->at += SEQUENCE_ARGS_BYTES + 4;
	}
	if (operation != OP_PUTFH || !has(message, 4) || !skip(message, 4, peek(message, 0)) ||
	    !take(message, &operation))
		return true;
	if (operation == OP_READ) {
		ret->kind = LDMA_MONITOR_READ;
	} else if (operation == OP_WRITE && has(message, WRITE_ARGS_BYTES)) {
		ret->kind = LDMA_MONITOR_WRITE;
		ret->bytes = peek(message, WRITE_ARGS_BYTES - 4);
	}
	return true;
}

/* What a reply tells. */
struct seen_reply {
	__u64 id[2];
	__u32 has_id; /* SEQUENCE worked */
	__u32 kind;   /* READ or WRITE: it worked, and did so many bytes: */
	__u32 bytes;
	__u32 has_failed; /* RPC says so, or the COMPOUND's status */
};

/* What is too short to tell may be one. */
static __always_inline bool is_reply(const struct message *message)
{
	return !has(message, 24) || peek(message, 4) == RPC_REPLY;
}

/* Reads an RPC message. false: it is no reply. is_compound: the call was one. */
static __always_inline bool read_reply(struct message *message, bool is_compound,
				       struct seen_reply *ret)
{
	__u32 operation;

	/* xid, direction, whether it was accepted, verifier's flavour and length, how it was */
	if (!has(message, 24))
		return true;
	if (peek(message, 4) != RPC_REPLY)
		return false;
	if (peek(message, 8) || !skip(message, 20, peek(message, 16)) || !has(message, 4) ||
	    peek(message, 0)) {
		ret->has_failed = 1;
		return true;
	}
	message->at += 4;
	if (!is_compound || !has(message, 8))
		return true;
	ret->has_failed = peek(message, 0) != 0;
	if (!skip(message, 4 + 4 + 4, peek(message, 4))) /* status, tag, number of results */
		return true;
	for (int i = 0; i < RESULTS_MOST; i++) {
		if (!has(message, 8) || peek(message, 4))
			break;
		operation = peek(message, 0);
		message->at += 8;
		if (operation == OP_SEQUENCE) {
			if (!has(message, SEQUENCE_RESULT_BYTES))
				break;
			peek_id(message, ret->id);
			ret->has_id = 1;
			message->at += SEQUENCE_RESULT_BYTES;
		} else if (operation == OP_READ) {
			if (!has(message, 8)) /* whether it is the end, count */
				break;
			ret->kind = LDMA_MONITOR_READ;
			ret->bytes = peek(message, 4);
			break;
		} else if (operation == OP_WRITE) {
			if (!has(message, 4))
				break;
			ret->kind = LDMA_MONITOR_WRITE;
			ret->bytes = peek(message, 0);
			break;
		} else if (operation != OP_PUTFH) {
			break;
		}
	}
	return true;
}

#endif
