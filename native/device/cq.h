/* SPDX-License-Identifier: BSD-2-Clause */
/* A completion queue is a ring of work completions with an event that can be armed. Queue pairs of a device push to it;
 * the consumer polls it, or arms it and waits for the event.
 *
 * The thread that owns the device pushes. One other thread at a time may poll meanwhile. Only the owner of the device
 * may call anything else. */
#ifndef LDMA_CQ_H
#define LDMA_CQ_H

#include <stdbool.h>
#include <stdint.h>

/* Names and numbers of ibv_wc_status. */
#define LDMA_WC_STATUSES(X)                                                                        \
	X(SUCCESS, 0)                                                                              \
	X(LOC_LEN_ERR, 1)                                                                          \
	X(LOC_QP_OP_ERR, 2)                                                                        \
	X(LOC_PROT_ERR, 4)                                                                         \
	X(WR_FLUSH_ERR, 5)                                                                         \
	X(BAD_RESP_ERR, 7)                                                                         \
	X(LOC_ACCESS_ERR, 8)                                                                       \
	X(REM_INV_REQ_ERR, 9)                                                                      \
	X(REM_ACCESS_ERR, 10)                                                                      \
	X(REM_OP_ERR, 11)                                                                          \
	X(RETRY_EXC_ERR, 12)                                                                       \
	X(RNR_RETRY_EXC_ERR, 13)

enum ldma_wc_status {
#define X(name, value) LDMA_WC_##name = (value),
	LDMA_WC_STATUSES(X)
#undef X
};

/* The operation that completed, numbered as in ibv_wc_opcode. */
enum ldma_wc_opcode {
	LDMA_WC_SEND = 0,
	LDMA_WC_RDMA_WRITE = 1,
	LDMA_WC_RDMA_READ = 2,
	LDMA_WC_COMP_SWAP = 3,
	LDMA_WC_FETCH_ADD = 4,
	LDMA_WC_RECV = 128,
	LDMA_WC_RECV_RDMA_WITH_IMM = 129,
};

/* Numbers as in ibv_wc_flags. */
enum ldma_wc_flag { LDMA_WC_GRH = 1, LDMA_WC_WITH_IMM = 2, LDMA_WC_WITH_INV = 8 };

struct ldma_wc {
	uint64_t wr_id;
	uint32_t byte_length; /* of what was received, read or fetched */
	uint32_t qp_num, src_qp;
	uint32_t imm; /* immediate data, or the invalidated key */
	uint8_t status, opcode, flags;
	bool is_solicited;
};

enum ldma_cq_arm { LDMA_CQ_NOT_ARMED, LDMA_CQ_ARMED_SOLICITED, LDMA_CQ_ARMED_ANY };

struct ldma_cq;

/* The list in which queues report the events that they were armed for, oldest first. */
struct ldma_cq_channel {
	struct ldma_cq *first, *last;
	struct ldma_cq
		*raised; /* queues with an event since ldma_cq_channel_raised last took them */
};

struct ldma_cq {
	struct ldma_wc *ring;
	uint32_t mask, head, tail;
	uint32_t users;     /* queue pairs that complete here */
	uint32_t lost;      /* completions that found the ring full */
	uint8_t armed;      /* enum ldma_cq_arm */
	bool event_pending; /* the completion came for which the queue was armed */
	struct ldma_cq_channel *channel;
	struct ldma_cq *next_event, *next_raised;
	bool is_raised;
	uint32_t events;   /* events so far; waiting threads sleep on this word */
	uint32_t sleepers; /* belongs to the port */
};

/* Returns a new queue, which the caller destroys, or NULL without memory. capacity is rounded up to a power of two;
 * channel may be NULL and must outlive the queue. */
struct ldma_cq *ldma_cq_create(uint32_t capacity, struct ldma_cq_channel *channel);

/* Returns 0, or -EBUSY while queue pairs use the queue. NULL is accepted. */
int ldma_cq_destroy(struct ldma_cq *cq);

/* Adds a completion. A full ring loses it and counts it in lost: that is an overrun, an error of the queue. The caller
 * must create a queue large enough for all that may complete to it. */
void ldma_cq_push(struct ldma_cq *cq, const struct ldma_wc *wc);

/* Takes up to count completions in their order into ret. Returns how many it took. */
uint32_t ldma_cq_poll(struct ldma_cq *cq, struct ldma_wc *ret, uint32_t count);

static inline bool ldma_cq_is_empty(const struct ldma_cq *cq)
{
	return __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE) ==
	       __atomic_load_n(&cq->head, __ATOMIC_RELAXED);
}

/* Asks for one event at the next completion, or the next that is solicited or failed (IBA 11.4.2.2). */
void ldma_cq_arm(struct ldma_cq *cq, enum ldma_cq_arm what);

/* Takes the queue's event. Returns false if none came since the queue was armed or the event was taken already. */
bool ldma_cq_take_event(struct ldma_cq *cq);

/* Returns a queue that had an event since it was last returned here, or NULL. The queue's event stays. */
struct ldma_cq *ldma_cq_channel_raised(struct ldma_cq_channel *channel);

/* Takes the oldest event. Returns its queue, or NULL if there is none. */
struct ldma_cq *ldma_cq_channel_next(struct ldma_cq_channel *channel);

#endif
