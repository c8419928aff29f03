/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair is one endpoint of a device: its type, state and attributes, the rings of its work requests, and the
 * state of its three roles: requester and completer (struct ldma_requester) and responder. ldma_device_create_qp makes
 * one; ldma_qp_modify takes it through its states. The caller posts work with ldma_qp_post_send and ldma_qp_post_recv;
 * it completes in the completion queues that were given at the creation. One thread at a time may call a device and
 * what belongs to it. */
#ifndef LDMA_QP_H
#define LDMA_QP_H

#include <stddef.h>

#include "device/cnp.h"
#include "device/congestion.h"
#include "device/cq.h"
#include "device/event.h"
#include "device/timer.h"
#include "memory/sgl.h"
#include "wire/packet.h"

#define LDMA_PSN_MASK 0xffffffu
#define LDMA_PSN_HALF 0x800000u
#define LDMA_MAX_SGE 16
#define LDMA_MAX_INLINE 1024
#define LDMA_MAX_RD_ATOMIC 16
#define LDMA_MAX_MESSAGE 0x80000000u /* 2 GiB, the largest of IBA 9.4 */
#define LDMA_GRH_BYTES 40
#define LDMA_GSI_QP 1
#define LDMA_GSI_QKEY 0x80010000u
#define LDMA_PACKET_MAX (40 + 8 + LDMA_BTH_BYTES + 32 + 4096 + LDMA_ICRC_BYTES)

/* Numbers as in ib_qp_type. */
enum ldma_qp_type { LDMA_QP_GSI = 1, LDMA_QP_RC = 2, LDMA_QP_UC = 3, LDMA_QP_UD = 4 };

/* Numbers as in ibv_qp_state. */
enum ldma_qp_state {
	LDMA_QP_RESET,
	LDMA_QP_INIT,
	LDMA_QP_RTR,
	LDMA_QP_RTS,
	LDMA_QP_SQD,
	LDMA_QP_SQE,
	LDMA_QP_ERR,
};

/* Numbers as in ibv_wr_opcode. */
enum ldma_wr_opcode {
	LDMA_WR_RDMA_WRITE = 0,
	LDMA_WR_RDMA_WRITE_WITH_IMM = 1,
	LDMA_WR_SEND = 2,
	LDMA_WR_SEND_WITH_IMM = 3,
	LDMA_WR_RDMA_READ = 4,
	LDMA_WR_ATOMIC_CMP_AND_SWP = 5,
	LDMA_WR_ATOMIC_FETCH_AND_ADD = 6,
	LDMA_WR_SEND_WITH_INV = 9,
};

/* As in ibv_send_flags. */
enum ldma_send_flag {
	LDMA_SEND_FENCE = 1,
	LDMA_SEND_SIGNALED = 2,
	LDMA_SEND_SOLICITED = 4,
	LDMA_SEND_INLINE = 8,
};

/* The path to a peer. Addresses are as in struct ldma_packet: IPv4 in the first four bytes, the rest 0. */
struct ldma_path {
	uint8_t ip_version; /* 4 or 6 */
	uint8_t tos, ttl;
	uint16_t sport;
	uint8_t src[16], dst[16];
};

struct ldma_send_wr {
	uint64_t wr_id;
	const struct ldma_sge *sge;
	const void *inline_data; /* with LDMA_SEND_INLINE, instead of sge */
	uint32_t sge_count, inline_length;
	uint8_t opcode, flags; /* enum ldma_wr_opcode, mask of enum ldma_send_flag */
	uint32_t imm;          /* immediate data, or the key to invalidate */
	uint64_t remote_va;
	uint32_t rkey;
	uint64_t compare, swap_add;
	const struct ldma_path *path; /* this and the next two: UD and GSI only */
	uint32_t remote_qp, remote_qkey;
};

struct ldma_recv_wr {
	uint64_t wr_id;
	const struct ldma_sge *sge;
	uint32_t sge_count;
};

/* A send request in its ring. PSNs here do not wrap: only the wire has 24 bits. */
struct ldma_send_wqe {
	uint64_t wr_id, remote_va, compare, swap_add;
	uint64_t first_psn, end_psn; /* end_psn: the first PSN of the next request */
	uint32_t length, rkey, imm, remote_qp, remote_qkey;
	uint8_t opcode, flags, sge_count, status;
	struct ldma_sge
		sge[]; /* or inline data; a datagram's path is at the end (ldma_qp_wqe_path) */
};

struct ldma_recv_wqe {
	uint64_t wr_id;
	uint32_t length, sge_count;
	struct ldma_sge sge[LDMA_MAX_SGE];
};

/* A ring of Receives, of one queue pair or shared by many (SRQ). */
struct ldma_rq {
	uint8_t *ring;
	size_t stride;
	uint32_t mask, head, tail, max_sge, users;
	struct ldma_pd *pd;
	uint32_t limit; /* when fewer are left there is an event; 0: none */
};

/* What the responder keeps to answer a READ or atomic again (IBA 9.7.5.1.4). */
struct ldma_resource {
	uint32_t first_psn, count; /* of the original request */
	uint64_t va;
	uint32_t rkey, length;
	uint64_t original;  /* of an atomic */
	uint8_t operation;  /* enum ldma_operation; LDMA_OP_UNKNOWN: never used */
	bool was_answered;  /* all responses went out once */
	bool is_pending;    /* has responses to send */
	uint32_t psn, sent; /* the first response to send, how many have been sent */
	uint64_t from_va;
	uint32_t from_length;
};

struct ldma_counters {
#define COUNTER(name) uint64_t name;
#include "device/counters.def"
};

struct ldma_requester {
	uint8_t *ring;
	size_t stride;
	uint32_t mask, head, cursor, tail; /* cursor: the request whose packet is next */
	uint32_t max_sge, max_inline;
	uint64_t una, next, sent_end,
		post; /* PSNs: oldest unacknowledged; next; after all sent; of the next post */
	uint32_t rd_outstanding; /* READ and atomic requests that end behind una and before next */
	uint8_t retry_left, rnr_left;
	bool is_rnr_waiting, has_rewound; /* has_rewound: since una last moved */
	bool is_drain_told;
	uint64_t asked; /* after the last PSN for which the peer owes an ACK or a response */
	struct ldma_congestion congestion;
};

struct ldma_responder {
	uint32_t epsn, msn;
	uint8_t operation; /* of the message in progress; LDMA_OP_UNKNOWN: none */
	bool has_nak_sent, has_recv, is_established;
	bool is_ack_pending, is_ack_lazy;
	uint8_t ack_syndrome;
	uint32_t ack_psn, lazy_acks; /* lazy_acks: in a row */
	uint64_t write_va;
	uint32_t write_rkey, write_left, write_length;
	uint32_t recv_offset;
	struct ldma_recv_wqe recv; /* taken for the message in progress */
	struct ldma_resource resources[LDMA_MAX_RD_ATOMIC];
	uint32_t newest,
		pending; /* newest: the next resource to use; pending: how many have responses to send */
};

/* Numbers as in ibv_qp_attr_mask. */
enum ldma_attr {
	LDMA_ATTR_ACCESS = 1 << 3,
	LDMA_ATTR_PKEY = 1 << 4,
	LDMA_ATTR_QKEY = 1 << 6,
	LDMA_ATTR_PATH = 1 << 7,
	LDMA_ATTR_MTU = 1 << 8,
	LDMA_ATTR_TIMEOUT = 1 << 9,
	LDMA_ATTR_RETRY_COUNT = 1 << 10,
	LDMA_ATTR_RNR_RETRY = 1 << 11,
	LDMA_ATTR_RQ_PSN = 1 << 12,
	LDMA_ATTR_MAX_RD_ATOMIC = 1 << 13,
	LDMA_ATTR_MIN_RNR_TIMER = 1 << 15,
	LDMA_ATTR_SQ_PSN = 1 << 16,
	LDMA_ATTR_MAX_DEST_RD_ATOMIC = 1 << 17,
	LDMA_ATTR_DEST_QP = 1 << 20,
};

/* Attributes of a queue pair. Each transition always takes these:
 * INIT: access, qkey (UD; GSI has its own), pkey. RTR: mtu and, except for UD and GSI, path, dest_qp, rq_psn,
 * max_dest_rd_atomic, min_rnr_timer. RTS from RTR: sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic.
 * It takes others if optional names them: which, is in qp_state.c, as in ibv_modify_qp(3). */
struct ldma_qp_attr {
	uint32_t optional; /* mask of enum ldma_attr */
	uint32_t access, qkey;
	uint16_t pkey;
	uint32_t mtu; /* 256, 512, 1024, 2048 or 4096 */
	struct ldma_path path;
	uint32_t dest_qp, rq_psn, sq_psn;
	uint8_t max_dest_rd_atomic, max_rd_atomic;
	uint8_t min_rnr_timer; /* 5 bits, IBA table 45 */
	uint8_t timeout;       /* 4.096 us * 2^timeout; 0: none */
	uint8_t retry_count;   /* 0 to 7 */
	uint8_t rnr_retry;     /* 0 to 6; 7: for ever */
};

struct ldma_qp_init {
	uint8_t type;
	bool signals_all; /* every send completes with an entry */
	struct ldma_pd *pd;
	struct ldma_cq *send_cq, *recv_cq;
	struct ldma_rq *srq; /* or NULL */
	uint32_t max_send, max_recv, max_send_sge, max_recv_sge, max_inline;
};

/* What waits for a page of a paged region. */
enum ldma_page_wait {
	LDMA_WAIT_REQUESTS = 1,
	LDMA_WAIT_RESPONSES = 2,
};

struct ldma_device;

struct ldma_qp {
	struct ldma_device *device;
	uint32_t number;
	uint8_t type, state;
	bool signals_all, is_ready, is_lazy, prefers_requests;
	bool has_overrun; /* one of its completions was lost: goes to ERR at its next turn */
	struct ldma_qp *next_ready, *next_lazy;
	struct ldma_timer timer;
	struct ldma_timer page_timer; /* when to try again what waits for a page */
	uint8_t page_waits;           /* mask of enum ldma_page_wait */
	struct ldma_pd *pd;
	struct ldma_cq *send_cq, *recv_cq;
	struct ldma_rq *rq, own_rq;
	struct ldma_qp_attr attr;
	struct ldma_requester req;
	struct ldma_responder resp;
	struct ldma_cnp cnp;
	struct ldma_counters counters;
};

/* Returns 0, -ENOMEM, or -EINVAL (no protection domain, or max_sge or depth beyond the limits). */
int ldma_rq_init(struct ldma_rq *rq, struct ldma_pd *pd, uint32_t depth, uint32_t max_sge);
void ldma_rq_destroy(struct ldma_rq *rq);

/* Returns 0, -ENOMEM (the ring is full) or -EINVAL (too many pieces). The memory is checked only when it is used. */
int ldma_rq_post(struct ldma_rq *rq, const struct ldma_recv_wr *wr);

/* Asks for one event when fewer than limit Receives are left after one was taken; 0: none. */
void ldma_rq_set_limit(struct ldma_rq *rq, uint32_t limit);

/* Takes the oldest Receive. Returns false if there is none. */
bool ldma_rq_take(struct ldma_rq *rq, struct ldma_recv_wqe *ret);

/* Makes a queue pair in RESET. Returns 0, -EINVAL or -ENOMEM. The caller chooses the number. */
int ldma_qp_init(struct ldma_qp *qp, struct ldma_device *device, uint32_t number,
		 const struct ldma_qp_init *init);
void ldma_qp_destroy(struct ldma_qp *qp);

/* Moves to another state, or changes attributes in this one (IBA 10.3.1). attr may be NULL where nothing is taken from
 * it. Returns 0, or with nothing changed -EINVAL (there is no such transition, it does not take an attribute, or one is
 * out of range) or -EBUSY (max_dest_rd_atomic while responses wait). A move to ERR flushes all work requests; a move to
 * RESET drops them without completions. */
int ldma_qp_modify(struct ldma_qp *qp, enum ldma_qp_state state, const struct ldma_qp_attr *attr);

/* Post a work request; what it points to (not the memory that it names) is copied. Return 0, -EINVAL (not allowed in
 * this state or for this type, or beyond its limits) or -ENOMEM (the ring is full).
 * In SQE and ERR a send request, in ERR a Receive, completes as flushed at once (IBA 10.3.1.6, 10.3.1.7). */
int ldma_qp_post_send(struct ldma_qp *qp, const struct ldma_send_wr *wr);
int ldma_qp_post_recv(struct ldma_qp *qp, const struct ldma_recv_wr *wr);

/* Returns whether, in SQD, every request that had begun has completed (IBA 10.3.1.5). SQ_DRAINED tells it, too. */
bool ldma_qp_is_drained(const struct ldma_qp *qp);

/* What follows is for the roles (requester, completer, responder) and the device only. */

static inline struct ldma_send_wqe *ldma_qp_wqe(const struct ldma_qp *qp, uint32_t index)
{
	return (struct ldma_send_wqe *)(qp->req.ring + qp->req.stride * (index & qp->req.mask));
}

static inline struct ldma_recv_wqe *ldma_rq_wqe(const struct ldma_rq *rq, uint32_t index)
{
	return (struct ldma_recv_wqe *)(rq->ring + rq->stride * (index & rq->mask));
}

static inline bool ldma_qp_is_datagram(const struct ldma_qp *qp)
{
	return qp->type == LDMA_QP_UD || qp->type == LDMA_QP_GSI;
}

/* Returns the path of a datagram. Only datagrams have one: the rings of connected queue pairs are that much smaller. */
static inline struct ldma_path *ldma_qp_wqe_path(const struct ldma_qp *qp, uint32_t index)
{
	return (struct ldma_path *)((uint8_t *)ldma_qp_wqe(qp, index) + qp->req.stride -
				    sizeof(struct ldma_path));
}

/* Counts for the queue pair and its device. */
#define LDMA_COUNT_BY(qp, name, n) ((qp)->counters.name += (n), (qp)->device->counters.name += (n))
#define LDMA_COUNT(qp, name) LDMA_COUNT_BY(qp, name, 1)

/* ldma_qp_wait_for_page notes that a page is absent and was asked for: nothing of this kind is sent until page_timer
 * lets it try again. The other function ends such waits; `kinds` is a mask. */
void ldma_qp_wait_for_page(struct ldma_qp *qp, enum ldma_page_wait kind, uint64_t now_ns);
void ldma_qp_forget_waits(struct ldma_qp *qp, uint8_t kinds);

/* Completes the send request at the head and retires it; an entry is made if it failed or asked for one. */
void ldma_qp_complete_send(struct ldma_qp *qp, enum ldma_wc_status status);

/* Takes the oldest Receive, its own or a shared one, for a message. Returns false if there is none. */
bool ldma_qp_take_recv(struct ldma_qp *qp, struct ldma_recv_wqe *ret);

/* Completes the Receive of the message in progress. */
void ldma_qp_complete_recv(struct ldma_qp *qp, struct ldma_wc *wc);

/* Completes the request at the head with an error and flushes what follows: RC goes to ERR, the others to SQE
 * (IBA 10.3.1.6). */
void ldma_qp_fail_send(struct ldma_qp *qp, enum ldma_wc_status status);

/* Moves to ERR: flushes sends and the queue pair's own Receives in their order (IBA 10.3.1.7). */
void ldma_qp_enter_error(struct ldma_qp *qp);

/* Queues an event about the object: the queue pair, or a queue that it uses. */
void ldma_qp_raise(struct ldma_qp *qp, enum ldma_event_type type, const void *object);

/* Raises SQ_DRAINED if the queue pair is drained and has not told it yet. */
void ldma_qp_tell_drained(struct ldma_qp *qp);

/* Moves to ERR because a completion was lost. */
void ldma_qp_end_overrun(struct ldma_qp *qp);

/* Fills the fields that all packets of the queue pair have in common. */
void ldma_qp_start_packet(const struct ldma_qp *qp, const struct ldma_path *path, uint8_t opcode,
			  uint32_t psn, struct ldma_packet *ret);

#endif
