/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls of the load: COMPOUNDs of SEQUENCE, PUTFH and READ or WRITE (RFC 8881). A session's template holds the
 * whole message; each call changes a few words of it. The parser accepts only replies that are exactly what was asked
 * for. */
#ifndef LDMA_IO_CALL_H
#define LDMA_IO_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "wire/nfs.h"

#define LDMA_HANDLE_MOST 128     /* NFS4_FHSIZE */
#define LDMA_CREDENTIAL_MOST 416 /* a flavour and 400 bytes, and a verifier of none */
#define LDMA_IO_CALL_MOST (24 + LDMA_CREDENTIAL_MOST + 12 + 36 + 8 + LDMA_HANDLE_MOST + 36)

/* A file, and the session by which it is used. credential: XDR of the call's credential and verifier. */
struct ldma_io_target {
	uint8_t session[16], stateid[16];
	uint8_t handle[LDMA_HANDLE_MOST];
	uint8_t credential[LDMA_CREDENTIAL_MOST];
	uint32_t handle_length, credential_length;
};

/* A call. length: of all but the data of a WRITE, which follows it. */
struct ldma_io_template {
	uint8_t message[LDMA_IO_CALL_MOST];
	uint32_t length, sequence_at, offset_at, count_at;
};

struct ldma_io {
	uint32_t slot, sequence, highest;
	uint64_t offset;
	uint32_t count;
};

/* Makes the template. Returns 0, or -EINVAL: a part is too long, or is no XDR. */
int ldma_io_template_init(struct ldma_io_template *ret, const struct ldma_io_target *target,
			  bool is_write);

static inline void ldma_io_patch(struct ldma_io_template *call, const struct ldma_io *io)
{
	uint8_t *at = call->message + call->sequence_at;

	put32(at, io->sequence);
	put32(at + 4, io->slot);
	put32(at + 8, io->highest);
	put64(call->message + call->offset_at, io->offset);
	put32(call->message + call->count_at, io->count);
}

enum ldma_io_verdict {
	LDMA_IO_DONE,      /* count bytes; those of a READ that are not placed are at data */
	LDMA_IO_FAILED,    /* operation failed with status */
	LDMA_IO_REFUSED,   /* by RPC: status is its accept_stat, or 1000 + its reject_stat */
	LDMA_IO_MALFORMED, /* not a reply to this call */
};

struct ldma_io_reply {
	uint32_t status, operation;
	bool has_sequence; /* the slot's sequence was used, and target is valid */
	uint32_t target;   /* sr_target_highest_slotid */
	uint32_t count;
	bool is_end; /* of the file */
	const uint8_t *data;
};

/* Parses a reply, from its XID on. placed: bytes of its data that came by a chunk. */
enum ldma_io_verdict ldma_io_parse(const uint8_t *message, uint32_t length, uint32_t placed,
				   const uint8_t session[16], const struct ldma_io *io,
				   bool is_write, struct ldma_io_reply *ret);

#endif
