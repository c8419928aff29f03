/* SPDX-License-Identifier: BSD-2-Clause */
/* A request on its way through the responder; only the responder's files use it. Each check returns the next step. */
#ifndef LDMA_RESPONDER_REQUEST_H
#define LDMA_RESPONDER_REQUEST_H

#include "device/qp.h"

/* The next thing to do with a request. */
enum step {
	CHECK_PSN,
	CHECK_OPCODE,
	CHECK_LENGTH,
	CHECK_RIGHTS,
	TAKE_RECEIVE,
	EXECUTE,
	COMPLETE,
	REFUSE_INVALID, /* this and the next two end an RC connection with a NAK */
	REFUSE_ACCESS,
	REFUSE_OPERATION,
	NOT_READY,
	PAGE_ABSENT,
	DROP,
	DONE,
};

struct peer_request {
	struct ldma_qp *qp;
	const struct ldma_packet *packet;
	const struct ldma_opcode_info *info;
	const uint8_t *payload;
	uint32_t count; /* how many PSNs it takes */
};

/* In responder_execute.c: takes the request's bytes, changes memory or prepares the answer. */
enum step ldma_responder_execute(struct peer_request *r);

#endif
