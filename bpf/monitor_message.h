/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads RPC-over-RDMA messages (RFC 8166) and what NFSv4.1 puts into them (RFC 8881), from the first bytes of a SEND.
 *
 * Of a call it reads SEQUENCE's session and, after SEQUENCE and PUTFH, READ or WRITE; of a reply the same, with what
 * was read or written. Everything is bounded, and anything unexpected ends the walk: what was found until then
 * counts. */
#ifndef LDMA_MONITOR_MESSAGE_H
#define LDMA_MONITOR_MESSAGE_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/monitor_scratch.h"
#include "bpf/monitor_tables.h"
#include "wire/nfs.h"
#include "wire/rpc.h"

#define LOOK_BYTES 528 /* the part of a segment that is read, from its BTH on */
#define RPCRDMA_SHORTEST_BYTES 16
#define RPCRDMA_FIXED_BYTES 28 /* of a header with lists that are empty */
#define SEGMENTS_MOST 16
#define RESULTS_MOST 3
#define SEQUENCE_ARGS_BYTES 32
#define SEQUENCE_RESULT_BYTES 36
#define WRITE_ARGS_BYTES 32 /* stateid, offset, stability, count */
/* A reply without tag to a COMPOUND whose SEQUENCE worked; with one that failed it is shorter. */
#define SEQUENCE_REPLY_BYTES 80

/* A message in the window: `at` is where the walk through it stands, `end` where it, or its part that is read, ends. */
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

/* Returns whether so many bytes follow. A walk ends where the message, or its part that is read, ends. */
static __always_inline bool has(const struct message *message, __u32 bytes)
{
	return message->at + bytes <= message->end;
}

/* Returns what is so many bytes ahead, up to PEEK_MOST; it has to be there. The mask is for the verifier. It comes
 * before the addition for speed: it is then the same for all that is read from one place of the walk. */
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

/* Moves past fixed bytes and an opaque of that length. Returns whether the message goes that far. */
static __always_inline bool skip(struct message *message, __u32 fixed, __u32 opaque)
{
	if (opaque > LOOK_BYTES)
		return false;
	message->at += fixed + ((opaque + 3) & ~3u);
	return message->at <= message->end;
}

/* Reads a session's id, and the sequence number and slot behind it. */
static __always_inline void peek_id(const struct message *message, __u64 ret[2], __u32 slot[2])
{
	const __u64 *id = ahead_of(message, 0);

	ret[0] = id[0];
	ret[1] = id[1];
	slot[0] = peek(message, 16);
	slot[1] = peek(message, 20);
}

/* Takes the segments of a chunk, and adds up their bytes. */
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

/* Reads the header, and its lists as far as possible, and moves past it. Returns 1 if an RPC message follows; 0: there
 * is none, or it is too far away; negative: this is no header of version 1. */
static __always_inline int read_header(struct message *message, struct rpcrdma *ret)
{
	__u32 more;

	if (!has(message, RPCRDMA_SHORTEST_BYTES))
		return -1;
	ret->xid = peek(message, 0);
	ret->credits = peek(message, 8);
	ret->proc = peek(message, 12);
	ret->read_bytes = ret->write_bytes = ret->reply_bytes = 0;
	if (peek(message, 4) != LDMA_RPCRDMA_VERSION || ret->proc > LDMA_RPCRDMA_ERROR ||
	    ret->proc == LDMA_RPCRDMA_MSGP)
		return -1;
	if (ret->proc > LDMA_RPCRDMA_NOMSG)
		return 0;
	if (!has(message, RPCRDMA_FIXED_BYTES))
		return -1;
	message->at += RPCRDMA_SHORTEST_BYTES;
	for (int i = 0; i < SEGMENTS_MOST && has(message, 24) && peek(message, 0); i++) {
		if (peek(message, 4)) /* a chunk at position 0 has the message itself */
			ret->read_bytes += peek(message, 12);
		message->at += 24;
	}
	/* NFS offers one write chunk for a READ; of several, only the first counts. */
	if (!take(message, &more) || more || !take(message, &more))
		return 0;
	if (more && (!take_chunk(message, &ret->write_bytes) || !take(message, &more) || more))
		return 0;
	if (!take(message, &more) || (more && !take_chunk(message, &ret->reply_bytes)))
		return 0;
	return ret->proc == LDMA_RPCRDMA_MSG;
}

/* What a call says about itself. */
struct seen_call {
	__u64 id[2];
	__u32 slot[2]; /* sequence number, slot */
	__u32 has_id;
	__u32 kind;  /* enum ldma_monitor_kind */
	__u32 bytes; /* of a WRITE */
	__u32 tag_bytes;
};

/* Reads an RPC message. Returns false if it is no call. */
static __always_inline bool read_call(struct message *message, struct seen_call *ret)
{
	__u32 flavour, operation;

	/* xid, direction, version of RPC, program, its version, procedure, credential's flavour and length */
	if (!has(message, 32))
		return true;
	if (peek(message, 4) != LDMA_RPC_CALL)
		return false;
	ret->kind = LDMA_MONITOR_FOREIGN;
	if (peek(message, 12) != LDMA_NFS_PROGRAM || peek(message, 16) != LDMA_NFS_VERSION ||
	    peek(message, 20) != LDMA_NFS_COMPOUND)
		return true;
	ret->kind = LDMA_MONITOR_OTHER;
	flavour = peek(message, 24);
	if (flavour > LDMA_RPC_AUTH_SYS || !skip(message, 32, peek(message, 28)))
		return true;
	if (!has(message, 8) || !skip(message, 8, peek(message, 4))) /* the verifier */
		return true;
	if (!has(message, 4))
		return true;
	ret->tag_bytes = peek(message, 0);
	/* the tag; minor version, number of operations */
	if (!skip(message, 4 + 8, ret->tag_bytes) || !take(message, &operation))
		return true;
	if (operation == LDMA_NFS_OP_SEQUENCE) {
		if (!has(message, SEQUENCE_ARGS_BYTES + 4))
			return true;
		peek_id(message, ret->id, ret->slot);
		ret->has_id = 1;
		operation = peek(message, SEQUENCE_ARGS_BYTES);
		message->at += SEQUENCE_ARGS_BYTES + 4;
	}
	if (operation != LDMA_NFS_OP_PUTFH || !has(message, 4) ||
	    !skip(message, 4, peek(message, 0)) || !take(message, &operation))
		return true;
	if (operation == LDMA_NFS_OP_READ) {
		ret->kind = LDMA_MONITOR_READ;
	} else if (operation == LDMA_NFS_OP_WRITE && has(message, WRITE_ARGS_BYTES)) {
		ret->kind = LDMA_MONITOR_WRITE;
		ret->bytes = peek(message, WRITE_ARGS_BYTES - 4);
	}
	return true;
}

/* What a reply says. */
struct seen_reply {
	__u64 id[2];
	__u32 slot[2]; /* sequence number, slot */
	__u32 has_id;  /* SEQUENCE worked */
	__u32 kind;    /* READ or WRITE: it worked, for so many bytes */
	__u32 bytes;
	__u32 has_failed; /* RPC says so, or the COMPOUND's status */
};

/* Returns whether the message is a reply, or too short to tell. */
static __always_inline bool is_reply(const struct message *message)
{
	return !has(message, 24) || peek(message, 4) == LDMA_RPC_REPLY;
}

/* Reads an RPC message. Returns false if it is no reply. is_compound: the call was a COMPOUND. */
static __always_inline bool read_reply(struct message *message, bool is_compound,
				       struct seen_reply *ret)
{
	__u32 operation;

	/* xid, direction, whether it was accepted, verifier's flavour and length, how it was */
	if (!has(message, 24))
		return true;
	if (peek(message, 4) != LDMA_RPC_REPLY)
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
		if (operation == LDMA_NFS_OP_SEQUENCE) {
			if (!has(message, SEQUENCE_RESULT_BYTES))
				break;
			peek_id(message, ret->id, ret->slot);
			ret->has_id = 1;
			message->at += SEQUENCE_RESULT_BYTES;
		} else if (operation == LDMA_NFS_OP_READ) {
			if (!has(message, 8)) /* whether it is the end, count */
				break;
			ret->kind = LDMA_MONITOR_READ;
			ret->bytes = peek(message, 4);
			break;
		} else if (operation == LDMA_NFS_OP_WRITE) {
			if (!has(message, 4))
				break;
			ret->kind = LDMA_MONITOR_WRITE;
			ret->bytes = peek(message, 0);
			break;
		} else if (operation != LDMA_NFS_OP_PUTFH) {
			break;
		}
	}
	return true;
}

#endif
