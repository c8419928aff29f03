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

#include "monitor_tables.h"

#define MESSAGE_BYTES 512       /* of a SEND that are looked at: a power of two */
#define MESSAGE_ROOM (512 + 16) /* so that a session id may be read at any word */
#define RPCRDMA_FIXED_BYTES 28
#define SEGMENTS_MOST 16
#define RESULTS_MOST 3
#define SEQUENCE_ARGS_BYTES 32
#define SEQUENCE_RESULT_BYTES 36
/* A reply without tag to a COMPOUND whose SEQUENCE worked; with one that failed it is shorter. */
#define SEQUENCE_REPLY_BYTES 80

enum { RPCRDMA_MSG, RPCRDMA_NOMSG, RPCRDMA_MSGP, RPCRDMA_DONE, RPCRDMA_ERROR };
enum { RPC_CALL, RPC_REPLY };
enum { AUTH_NONE, AUTH_SYS };
enum { NFS_PROGRAM = 100003, NFS_COMPOUND = 1, NFS_V4 = 4 };
enum { OP_PUTFH = 22, OP_READ = 25, OP_WRITE = 38, OP_SEQUENCE = 53 };

/* The first bytes of the message that is looked at. Functions that are not static are verified once, each for itself:
 * they find it here, since pointers into maps cannot be handed to them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[MESSAGE_ROOM]);
} messages SEC(".maps");

static __always_inline __u8 *message_bytes(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&messages, &key);
}

/* Where a walk stands. bytes points to MESSAGE_ROOM bytes, of which `length` are the message's. */
struct message {
	const __u8 *bytes;
	__u32 length;
	__u32 at;
};

struct rpcrdma {
	__u32 xid, credits, proc;
	__u32 read_bytes;  /* of the read list, without a message that comes by it */
	__u32 write_bytes; /* of the write list */
	__u32 reply_bytes; /* of the reply chunk */
};

/* The next word; ends the walk (false) where the message, or what is looked at of it, ends. */
static __always_inline bool take(struct message *message, __u32 *ret)
{
	__u32 at = message->at;

	if (at + 4 > message->length)
		return false;
	*ret = bpf_ntohl(*(const __be32 *)(message->bytes + (at & (MESSAGE_BYTES - 4))));
	message->at = at + 4;
	return true;
}

static __always_inline bool skip(struct message *message, __u32 bytes)
{
	if (bytes > MESSAGE_BYTES)
		return false;
	message->at += (bytes + 3) & ~3u;
	return message->at <= message->length;
}

static __always_inline bool skip_opaque(struct message *message, __u32 *ret)
{
	return take(message, ret) && skip(message, *ret);
}

static __always_inline bool take_id(struct message *message, __u64 ret[2])
{
	__u32 at = message->at;

	if (at + 16 > message->length)
		return false;
	__builtin_memcpy(ret, message->bytes + (at & (MESSAGE_BYTES - 4)), 16);
	message->at = at + 16;
	return true;
}

/* The segments of a chunk, and their bytes together. */
static __always_inline bool take_chunk(struct message *message, __u32 *bytes)
{
	__u32 count, length, handle;

	if (!take(message, &count) || count > SEGMENTS_MOST)
		return false;
	for (__u32 i = 0; i < SEGMENTS_MOST && i < count; i++) {
		if (!take(message, &handle) || !take(message, &length) || !skip(message, 8))
			return false;
		*bytes += length;
	}
	return true;
}

/* Reads the header, its lists as far as they can be. Returns where the RPC message behind it begins; 0: there is none,
 * or it is too far behind; negative: this is no header of version 1. */
__noinline int read_header(__u32 bytes, struct rpcrdma *ret)
{
	struct message message = {.bytes = message_bytes(), .length = bytes};
	__u32 version, more, position, length;

	if (!message.bytes || !ret)
		return -1;
	ret->read_bytes = ret->write_bytes = ret->reply_bytes = 0;
	if (!take(&message, &ret->xid) || !take(&message, &version) ||
	    !take(&message, &ret->credits) || !take(&message, &ret->proc))
		return -1;
	if (version != 1 || ret->proc > RPCRDMA_ERROR || ret->proc == RPCRDMA_MSGP)
		return -1;
	if (ret->proc > RPCRDMA_NOMSG)
		return 0;
	if (bytes < RPCRDMA_FIXED_BYTES)
		return -1;
	for (int i = 0; i < SEGMENTS_MOST; i++) {
		if (!take(&message, &more) || !more)
			break;
		if (!take(&message, &position) || !skip(&message, 4) || !take(&message, &length) ||
		    !skip(&message, 8))
			return 0;
		if (position)
			ret->read_bytes += length;
	}
	/* One write chunk is all that NFS offers for a READ; what has more is counted by its first. */
	if (!take(&message, &more))
		return 0;
	if (more && (!take_chunk(&message, &ret->write_bytes) || !take(&message, &more) || more))
		return 0;
	if (!take(&message, &more) || (more && !take_chunk(&message, &ret->reply_bytes)))
		return 0;
	return ret->proc == RPCRDMA_MSG ? (int)message.at : 0;
}

/* What a call tells of itself. */
struct seen_call {
	__u64 id[2];
	__u32 has_id;
	__u32 kind;  /* enum ldma_monitor_kind */
	__u32 bytes; /* of a WRITE */
	__u32 tag_bytes;
};

static __always_inline bool walk_call(struct message *message, struct seen_call *ret)
{
	__u32 type, program, version, procedure, word, flavour, operation;

	if (!skip(message, 4) || !take(message, &type) || !skip(message, 4) ||
	    !take(message, &program) || !take(message, &version) || !take(message, &procedure))
		return true;
	if (type != RPC_CALL)
		return false;
	ret->kind = LDMA_MONITOR_FOREIGN;
	if (program != NFS_PROGRAM || version != NFS_V4 || procedure != NFS_COMPOUND)
		return true;
	ret->kind = LDMA_MONITOR_OTHER;
	if (!take(message, &flavour) || !skip_opaque(message, &word) || flavour > AUTH_SYS ||
	    !skip(message, 4) || !skip_opaque(message, &word))
		return true;
	if (!skip_opaque(message, &ret->tag_bytes) || !skip(message, 8) ||
	    !take(message, &operation))
		return true;
	if (operation == OP_SEQUENCE) {
		if (!take_id(message, ret->id))
			return true;
		ret->has_id = 1;
		if (!skip(message, SEQUENCE_ARGS_BYTES - 16) || !take(message, &operation))
			return true;
	}
	if (operation != OP_PUTFH || !skip_opaque(message, &word) || !take(message, &operation))
		return true;
	if (operation == OP_READ) {
		ret->kind = LDMA_MONITOR_READ;
	} else if (operation == OP_WRITE && skip(message, 16 + 8 + 4) &&
		   take(message, &ret->bytes)) {
		ret->kind = LDMA_MONITOR_WRITE;
	}
	return true;
}

/* Reads the RPC message that begins at `at`. 0: it is no call. */
__noinline int read_call(__u32 at, __u32 bytes, struct seen_call *ret)
{
	struct message message = {.bytes = message_bytes(), .length = bytes, .at = at};

	if (!message.bytes || !ret)
		return 0;
	return walk_call(&message, ret);
}

/* What a reply tells. */
struct seen_reply {
	__u64 id[2];
	__u32 has_id; /* SEQUENCE worked */
	__u32 kind;   /* READ or WRITE: it worked, and did so many bytes: */
	__u32 bytes;
	__u32 has_failed; /* RPC says so, or the COMPOUND's status */
};

static __always_inline bool walk_reply(struct message *message, bool is_compound,
				       struct seen_reply *ret)
{
	__u32 type, state, word, operation, status;

	if (!skip(message, 4) || !take(message, &type) || !take(message, &state))
		return true;
	if (type != RPC_REPLY)
		return false;
	if (state) { /* denied */
		ret->has_failed = 1;
		return true;
	}
	if (!skip(message, 4) || !skip_opaque(message, &word) || !take(message, &state))
		return true;
	if (state) {
		ret->has_failed = 1;
		return true;
	}
	if (!is_compound || !take(message, &status) || !skip_opaque(message, &word) ||
	    !skip(message, 4))
		return true;
	ret->has_failed = status != 0;
	for (int i = 0; i < RESULTS_MOST; i++) {
		if (!take(message, &operation) || !take(message, &status) || status)
			break;
		if (operation == OP_SEQUENCE) {
			if (!take_id(message, ret->id))
				break;
			ret->has_id = 1;
			if (!skip(message, SEQUENCE_RESULT_BYTES - 16))
				break;
		} else if (operation == OP_READ) {
			if (skip(message, 4) && take(message, &ret->bytes))
				ret->kind = LDMA_MONITOR_READ;
			break;
		} else if (operation == OP_WRITE) {
			if (take(message, &ret->bytes))
				ret->kind = LDMA_MONITOR_WRITE;
			break;
		} else if (operation != OP_PUTFH) {
			break;
		}
	}
	return true;
}

/* Reads the RPC message that begins at `at`. 0: it is no reply. is_compound: the call was one. */
__noinline int read_reply(__u32 at, __u32 bytes, __u32 is_compound, struct seen_reply *ret)
{
	struct message message = {.bytes = message_bytes(), .length = bytes, .at = at};

	if (!message.bytes || !ret)
		return 0;
	return walk_reply(&message, is_compound, ret);
}

#endif
