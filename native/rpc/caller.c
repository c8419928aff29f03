/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/caller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/rpc.h"

#define XID_BITS 12 /* of the number of a call */
_Static_assert(LDMA_CALLER_MOST == 1 << XID_BITS, "numbers in XIDs");

uint64_t ldma_caller_bytes(uint32_t calls, uint32_t send_bytes, uint32_t receive_bytes)
{
	return (uint64_t)calls * send_bytes + (uint64_t)ldma_caller_receives(calls) * receive_bytes;
}

int ldma_caller_init(struct ldma_caller *caller, const struct ldma_caller_config *config)
{
	if (!config->calls || config->calls > LDMA_CALLER_MOST ||
	    config->send_bytes < 2 * LDMA_CALLER_HEADER_MAX || !config->receive_bytes)
		return -EINVAL;
	*caller = (struct ldma_caller){
		.config = *config,
		.granted = 1, /* RFC 8166, 3.3.3 */
		.send_limit = config->send_bytes,
		.xid_step = config->first_xid,
		.slots = calloc(config->calls, sizeof(*caller->slots)),
		.free = calloc(config->calls, sizeof(*caller->free)),
	};
	if (!caller->slots || !caller->free) {
		ldma_caller_destroy(caller);
		return -ENOMEM;
	}
	while (caller->free_count < config->calls) {
		caller->free[caller->free_count] = config->calls - 1 - caller->free_count;
		caller->free_count++;
	}
	return 0;
}

void ldma_caller_destroy(struct ldma_caller *caller)
{
	free(caller->slots);
	free(caller->free);
	caller->slots = NULL;
	caller->free = NULL;
}

/* Returns the offset of a Receive's buffer: they are behind those of calls. */
static uint64_t receive_offset(const struct ldma_caller *caller, uint32_t receive)
{
	const struct ldma_caller_config *config = &caller->config;

	return (uint64_t)config->calls * config->send_bytes +
	       (uint64_t)receive * config->receive_bytes;
}

int ldma_caller_release(struct ldma_caller *caller, uint32_t receive)
{
	struct ldma_sge sge = {
		.va = caller->config.va + receive_offset(caller, receive),
		.length = caller->config.receive_bytes,
		.lkey = caller->config.lkey,
	};
	struct ldma_recv_wr wr = {
		.wr_id = (uint64_t)caller->config.tag << 32 | receive,
		.sge = &sge,
		.sge_count = 1,
	};

	return ldma_qp_post_recv(caller->config.qp, &wr);
}

int ldma_caller_prepare(struct ldma_caller *caller)
{
	uint32_t count = ldma_caller_receives(caller->config.calls);
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++)
		error = ldma_caller_release(caller, i);
	return error;
}

int ldma_caller_limit(struct ldma_caller *caller, uint32_t send_bytes)
{
	if (send_bytes < 2 * LDMA_CALLER_HEADER_MAX)
		return -EINVAL;
	if (send_bytes < caller->config.send_bytes)
		caller->send_limit = send_bytes;
	return 0;
}

int ldma_caller_take(struct ldma_caller *caller)
{
	uint32_t taken = caller->config.calls - caller->free_count;

	if (caller->error)
		return -ENOTCONN;
	if (taken >= caller->granted || !caller->free_count)
		return -EAGAIN;
	return (int)caller->free[--caller->free_count];
}

void ldma_caller_drop(struct ldma_caller *caller, uint32_t number)
{
	caller->free[caller->free_count++] = number;
}

uint32_t ldma_caller_xid(const struct ldma_caller *caller, uint32_t number)
{
	return caller->xid_step << XID_BITS | number;
}

static struct ldma_call_header header_of(const struct ldma_caller *caller, uint32_t number,
					 const struct ldma_request *request)
{
	return (struct ldma_call_header){
		.xid = ldma_caller_xid(caller, number),
		.credits = caller->config.calls,
		.message = request->message_chunk,
		.read = request->read,
		.position = request->position,
		.write = request->write,
		.reply = request->reply,
	};
}

uint32_t ldma_caller_inline_room(const struct ldma_caller *caller,
				 const struct ldma_request *request)
{
	struct ldma_call_header header = header_of(caller, 0, request);
	uint8_t encoded[LDMA_CALLER_HEADER_MAX];

	return caller->send_limit - ldma_call_header_encode(&header, encoded);
}

static int send(struct ldma_caller *caller, uint32_t number, uint32_t length)
{
	struct ldma_sge sge = {
		.va = caller->config.va + (uint64_t)number * caller->config.send_bytes,
		.length = length,
		.lkey = caller->config.lkey,
	};
	struct ldma_send_wr wr = {
		.wr_id = (uint64_t)caller->config.tag << 32 | number,
		.sge = &sge,
		.sge_count = 1,
		.opcode = LDMA_WR_SEND,
	};
	int error = ldma_qp_post_send(caller->config.qp, &wr);

	return error == -ENOMEM ? -EAGAIN : error;
}

int ldma_caller_post(struct ldma_caller *caller, uint32_t number,
		     const struct ldma_request *request)
{
	struct ldma_call_header header = header_of(caller, number, request);
	uint8_t *buffer = caller->config.memory + (uint64_t)number * caller->config.send_bytes;
	uint32_t length = ldma_call_header_encode(&header, buffer);
	int error;

	if (!request->message_chunk.length) {
		if (request->length < 8 || request->length > caller->send_limit - length)
			return -EMSGSIZE;
		put32(buffer + length, header.xid);
		memcpy(buffer + length + 4, request->message + 4, request->length - 4);
		length += request->length;
	}
	error = send(caller, number, length);
	if (error)
		return error;
	caller->slots[number] = (struct ldma_caller_slot){
		.write = request->write,
		.reply = request->reply,
		.user = request->user,
		.xid = header.xid,
		.is_open = true,
	};
	caller->xid_step++;
	caller->counters.calls++;
	caller->open++;
	if (caller->open > caller->peak)
		caller->peak = caller->open;
	return 0;
}

static enum ldma_caller_event broken(struct ldma_caller *caller, int error)
{
	caller->error = error;
	return LDMA_CALLER_BROKEN;
}

static enum ldma_caller_event end(struct ldma_caller *caller, uint32_t number, int error,
				  struct ldma_answer *ret)
{
	struct ldma_caller_slot *slot = &caller->slots[number];

	slot->is_open = false;
	caller->open--;
	ldma_caller_drop(caller, number);
	ret->user = slot->user;
	ret->number = number;
	ret->xid = slot->xid;
	ret->error = error;
	return LDMA_CALLER_ENDED;
}

/* Returns the call with that XID, or NULL. */
static struct ldma_caller_slot *find(struct ldma_caller *caller, uint32_t xid)
{
	uint32_t number = xid % LDMA_CALLER_MOST;
	struct ldma_caller_slot *slot = &caller->slots[number];

	return number < caller->config.calls && slot->is_open && slot->xid == xid ? slot : NULL;
}

static enum ldma_caller_event receive(struct ldma_caller *caller, const uint8_t *data,
				      uint32_t length, struct ldma_answer *ret)
{
	struct ldma_caller_slot *slot;
	struct ldma_reply_header header;
	enum ldma_reply_kind kind;
	uint32_t xid, credits, number;

	if (!ldma_reply_header_peek(data, length, &xid, &credits))
		return broken(caller, -EPROTO);
	slot = find(caller, xid);
	if (!slot) {
		caller->counters.strays++;
		return LDMA_CALLER_NOTHING;
	}
	number = (uint32_t)(slot - caller->slots);
	kind = ldma_reply_header_decode(data, length, &slot->write, &slot->reply, &header);
	if (kind == LDMA_REPLY_MALFORMED || !credits) /* 0 credits: RFC 8166, 3.3.1 */
		return broken(caller, -EPROTO);
	if (kind == LDMA_REPLY_INLINE &&
	    (length - header.length < 8 || get32(data + header.length + 4) != LDMA_RPC_REPLY)) {
		caller->counters.strays++; /* a call of the peer, which chooses its own XIDs */
		return LDMA_CALLER_NOTHING;
	}
	caller->granted = credits < caller->config.calls ? credits : caller->config.calls;
	caller->counters.replies++;
	if (kind == LDMA_REPLY_BAD_CALL) {
		caller->counters.errors++;
		return end(caller, number, -EREMOTEIO, ret);
	}
	if (kind == LDMA_REPLY_BAD_CHUNKS) {
		caller->counters.refused++;
		return end(caller, number, -EBADMSG, ret);
	}
	ret->placed = header.placed;
	ret->reply_length = header.reply_length;
	if (kind == LDMA_REPLY_INLINE) {
		ret->message = data + header.length;
		ret->length = length - header.length;
	}
	return end(caller, number, 0, ret);
}

enum ldma_caller_event ldma_caller_complete(struct ldma_caller *caller, const struct ldma_wc *wc,
					    struct ldma_answer *ret)
{
	*ret = (struct ldma_answer){0};
	if (caller->error)
		return LDMA_CALLER_BROKEN;
	if (wc->status != LDMA_WC_SUCCESS) {
		caller->status = wc->status;
		return broken(caller, -ECONNRESET);
	}
	if (wc->opcode != LDMA_WC_RECV)
		return LDMA_CALLER_NOTHING;
	ret->receive = (uint32_t)wc->wr_id;
	ret->has_receive = true;
	return receive(caller, caller->config.memory + receive_offset(caller, ret->receive),
		       wc->byte_length, ret);
}

bool ldma_caller_end_one(struct ldma_caller *caller, struct ldma_answer *ret)
{
	*ret = (struct ldma_answer){0};
	for (uint32_t i = 0; caller->open && i < caller->config.calls; i++) {
		if (!caller->slots[i].is_open)
			continue;
		end(caller, i, caller->error, ret);
		return true;
	}
	return false;
}
