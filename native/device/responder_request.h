/* A request on its way through the responder: what its files share. */
#ifndef LDMA_RESPONDER_REQUEST_H
#define LDMA_RESPONDER_REQUEST_H

#include "qp.h"

/* What to do next with a request. */
enum step {
	CHECK_PSN,
	CHECK_OPCODE,
	CHECK_LENGTH,
	CHECK_RIGHTS,
	TAKE_RECEIVE,
	EXECUTE,
	COMPLETE,
	REFUSE_INVALID, /* the last words of a connection */
	REFUSE_ACCESS,
	REFUSE_OPERATION,
	NOT_READY,
	PAGE_ABSENT,
	DROP,
	DONE,
};

struct request {
	struct ldma_qp *qp;
	const struct ldma_packet *packet;
	const struct ldma_opcode_info *info;
	const uint8_t *payload;
	uint32_t count; /* PSNs that it takes */
};

/* responder_execute.c: takes the request's bytes, changes memory or prepares the answer. */
enum step ldma_responder_execute(struct request *r);

#endif
