/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers of RPC (RFC 5531) and of RPC-over-RDMA version 1 (RFC 8166) that C and BPF know. Python's are in
 * livedma.wire.rpc, livedma.rpc.message and livedma.wire.rpcrdma; tests/wire/test_numbers.py compares. */
#ifndef LDMA_WIRE_RPC_H
#define LDMA_WIRE_RPC_H

/* RFC 5531 9 */
enum { LDMA_RPC_CALL = 0, LDMA_RPC_REPLY = 1 };
enum { LDMA_RPC_VERSION = 2, LDMA_RPC_NULL = 0 };

/* RFC 5531 8.2 and appendix A: flavours, and the most bytes of a credential or verifier, of its machine's name, and
 * groups. */
enum { LDMA_RPC_AUTH_NONE = 0, LDMA_RPC_AUTH_SYS = 1 };
enum { LDMA_RPC_AUTH_MOST = 400, LDMA_RPC_MACHINE_MOST = 255, LDMA_RPC_GIDS_MOST = 16 };

/* RFC 8166 4.2 */
enum { LDMA_RPCRDMA_VERSION = 1 };

enum ldma_rpcrdma_proc {
	LDMA_RPCRDMA_MSG = 0,
	LDMA_RPCRDMA_NOMSG = 1,
	LDMA_RPCRDMA_MSGP = 2,
	LDMA_RPCRDMA_DONE = 3,
	LDMA_RPCRDMA_ERROR = 4,
};

enum ldma_rpcrdma_error { LDMA_RPCRDMA_ERR_VERS = 1, LDMA_RPCRDMA_ERR_CHUNK = 2 };

#endif
