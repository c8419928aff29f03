/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's types that nfsd.bpf.c reads, with only the fields that it needs. Their offsets come from the running
 * kernel's BTF and that of its modules sunrpc, nfsd, rpcrdma and ib_core when the programs are loaded. */
#ifndef LDMA_NFSD_KERNEL_H
#define LDMA_NFSD_KERNEL_H

#include <linux/types.h>

#define RELOCATED __attribute__((preserve_access_index))

struct sock {
	void *sk_user_data;
} RELOCATED;

struct tcp_sock {
	__u32 copied_seq;
	__u32 rcv_nxt;
} RELOCATED;

struct __kernel_sockaddr_storage {
	__u16 ss_family;
} RELOCATED;

/* sunrpc */

struct svc_xprt_class {
	int xcl_ident;
} RELOCATED;

struct svc_xprt {
	struct svc_xprt_class *xpt_class;
	struct __kernel_sockaddr_storage xpt_local;
	struct __kernel_sockaddr_storage xpt_remote;
} RELOCATED;

struct svc_sock {
	struct svc_xprt sk_xprt;
	struct sock *sk_sk;
} RELOCATED;

struct svc_serv {
	unsigned int sv_nrthreads;
} RELOCATED;

struct svc_rqst {
	struct svc_xprt *rq_xprt;
	struct svc_serv *rq_server;
	void *rq_xprt_ctxt;
} RELOCATED;

/* nfsd */

struct nfs4_sessionid {
	unsigned char data[16];
} RELOCATED;

struct nfsd4_session {
	struct nfs4_sessionid se_sessionid;
} RELOCATED;

struct nfsd4_compound_state {
	struct nfsd4_session *session;
} RELOCATED;

/* ib_core */

struct ib_cqe {
	void (*done)(void);
} RELOCATED;

enum ib_wc_status { IB_WC_SUCCESS };

struct ib_wc {
	struct ib_cqe *wr_cqe;
	enum ib_wc_status status;
} RELOCATED;

struct ib_cq {
	void *cq_context;
} RELOCATED;

struct ib_qp {
	__u32 qp_num;
} RELOCATED;

/* rpcrdma */

struct svcxprt_rdma {
	struct svc_xprt sc_xprt;
	__u32 sc_max_requests;
	struct ib_qp *sc_qp;
} RELOCATED;

struct svc_rdma_chunk_ctxt {
	struct ib_cqe cc_cqe;
} RELOCATED;

struct svc_rdma_recv_ctxt {
	struct ib_cqe rc_cqe;
	struct svc_rdma_chunk_ctxt rc_cc;
} RELOCATED;

#endif
