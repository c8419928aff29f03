/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/control.h"

#include "rpc/reader.h"
#include "wire/nfs.h"
#include "wire/rpc.h"

#define TAG_MAX 1024
#define HEAD_MAX 4096 /* the operation is within so many bytes; bounds what is looked at */

static bool makes_or_ends_session(uint32_t op)
{
	switch (op) {
	case LDMA_NFS_OP_BIND_CONN_TO_SESSION:
	case LDMA_NFS_OP_EXCHANGE_ID:
	case LDMA_NFS_OP_CREATE_SESSION:
	case LDMA_NFS_OP_DESTROY_SESSION:
	case LDMA_NFS_OP_DESTROY_CLIENTID:
		return true;
	}
	return false;
}

bool ldma_is_control(const uint8_t *message, uint64_t length)
{
	struct ldma_reader in = {message, length < HEAD_MAX ? (uint32_t)length : HEAD_MAX, false};
	uint32_t procedure, operations, op;

	ldma_reader_word(&in); /* the XID */
	ldma_reader_expect(&in, LDMA_RPC_CALL);
	ldma_reader_expect(&in, LDMA_RPC_VERSION);
	ldma_reader_expect(&in, LDMA_NFS_PROGRAM);
	ldma_reader_expect(&in, LDMA_NFS_VERSION);
	procedure = ldma_reader_word(&in);
	for (int i = 0; i < 2; i++) { /* the credential, the verifier */
		ldma_reader_word(&in);
		ldma_reader_skip_opaque(&in, LDMA_RPC_AUTH_MOST);
	}
	if (procedure == LDMA_RPC_NULL)
		return !in.is_bad;
	ldma_reader_skip_opaque(&in, TAG_MAX);
	ldma_reader_word(&in); /* the minor version */
	operations = ldma_reader_word(&in);
	op = ldma_reader_word(&in);
	/* All of these have to be the only operation (RFC 8881, 2.10.3 and 18.35.3), or nearly (18.44.3). */
	return !in.is_bad && procedure == LDMA_NFS_COMPOUND && operations == 1 &&
	       (op == LDMA_NFS_OP_SEQUENCE || makes_or_ends_session(op));
}
