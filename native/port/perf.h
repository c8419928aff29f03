/* SPDX-License-Identifier: BSD-2-Clause */
/* The loops of `livedma perf`, in C because a loop in Python would measure Python. The caller fills struct ldma_perf,
 * owns all it points to, and runs one loop at a time; another thread may set is_cancelled and read done meanwhile. */
#ifndef LDMA_PERF_H
#define LDMA_PERF_H

#include "memory/mapped.h"
#include "port/port.h"

/* One connection of a measurement. The requests of all connections use the same local memory. */
struct ldma_perf_peer {
	struct ldma_qp *qp;
	uint64_t remote_va;
	uint32_t rkey;
};

/* The buffer of a Receive; handle 0: none. */
struct ldma_perf_buffer {
	uint64_t handle, va;
};

struct ldma_perf {
	struct ldma_port *port;
	struct ldma_cq *cq; /* of all connections, for sends and Receives */
	struct ldma_perf_peer *peers;
	uint32_t peer_count;
	uint8_t opcode;           /* LDMA_WR_SEND, LDMA_WR_RDMA_WRITE or LDMA_WR_RDMA_READ */
	uint32_t depth;           /* requests under way on a connection */
	uint32_t receives;        /* posted on a connection */
	uint64_t iterations;      /* of all connections together */
	uint64_t places, stride;  /* requests go to places of the other side's memory in an order
					  * like a random one; 0 or 1: all to the same place */
	struct ldma_sge local;    /* what is sent, or read into */
	struct ldma_sge received; /* where messages of the other side go, of any size */
	struct ldma_pool **pools; /* unless NULL: of each connection, for those messages */
	struct ldma_perf_buffer *buffers; /* of each Receive, if they are of pools or mapped */
	uint8_t *last_byte_sent;          /* of this side's WRITE */
	const volatile uint8_t *last_byte_received; /* of the other side's WRITE */
	struct ldma_mapped **mapped; /* unless NULL: of each connection, instead of pools */
	uint64_t spin_ns;
	volatile int is_cancelled; /* set by another thread: the loop ends */

	/* Results. done counts operations that completed; another thread may read it. */
	volatile uint64_t done;
	uint64_t started_ns, ended_ns;
	uint64_t refill_ns; /* the part of it that went into new Receives for used ones */
	uint64_t *posted_ns, *completed_ns; /* of each operation of a stream, unless NULL */
	uint8_t status;                     /* of the first completion that failed */
};

/* The loops return 0, -EIO (a completion failed: see status), -ETIMEDOUT (nothing happened for ten seconds) or
 * -ECANCELED. */

/* Keeps depth requests under way on every connection. */
int ldma_perf_stream(struct ldma_perf *perf);

/* Returns the least time per message over all runs of consecutive messages, from the post of the first to the
 * completion of the last: perftest defines the peak so. Quadratic in the iterations; 0 if their times were not kept. */
double ldma_perf_best_ns(const struct ldma_perf *perf);

/* Returns the longest time in which nothing completed; 0 if times were not kept. */
uint64_t ldma_perf_longest_gap_ns(const struct ldma_perf *perf);

/* Posts the Receives of every connection. The caller does so once, before the other side begins to SEND; the loops
 * replace each Receive that was used. */
int ldma_perf_prepare(struct ldma_perf *perf);

/* Receives the SENDs of the other side's stream. It may be called again for another stream. */
int ldma_perf_drain(struct ldma_perf *perf);

/* Gives the buffers of Receives back to their pools, once the queue pairs are gone. */
int ldma_perf_release(struct ldma_perf *perf);

/* Exchanges one message at a time on the first connection. The time of each (SEND and WRITE: there and back) goes to
 * ret_ns, which may be NULL. A WRITE is seen by its last byte, which counts up. is_first: this side begins. */
int ldma_perf_ping(struct ldma_perf *perf, bool is_first, uint64_t *ret_ns);

#endif
