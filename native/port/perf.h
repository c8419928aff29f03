/* The loops of `livedma perf`, where Python would be what is measured. */
#ifndef LDMA_PERF_H
#define LDMA_PERF_H

#include "pool.h"
#include "port.h"

/* One connection of a measurement. Requests of every connection use the same local memory. */
struct ldma_perf_peer {
	struct ldma_qp *qp;
	uint64_t remote_va;
	uint32_t rkey;
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
	uint64_t places, stride;  /* requests go round the other side's memory, as if at random;
					  * 0 or 1: all to the same place */
	struct ldma_sge local;    /* what is sent, or read into */
	struct ldma_sge received; /* where messages of the other side go, of any size */
	struct ldma_pool **
		pools; /* unless NULL: of each connection, where messages of the other side go instead, */
	uint64_t *handles;               /* and the buffer of each Receive there; 0: none */
	uint8_t *departing;              /* last byte of a WRITE of ours */
	const volatile uint8_t *landing; /* and of the other side's */
	uint64_t spin_ns;
	volatile int is_cancelled; /* set by another thread: the loop ends */

	/* Results. done counts operations that completed; another thread may look at it. */
	volatile uint64_t done;
	uint64_t started_ns, ended_ns;
	uint64_t refill_ns; /* of it, spent on Receives in place of those that were used */
	uint64_t *posted_ns, *completed_ns; /* of each operation of a stream, unless NULL */
	uint8_t status;                     /* of the first completion that failed */
};

/* All return 0, -EIO (a completion failed: status), -ETIMEDOUT (nothing happened for ten seconds) or -ECANCELED. */

/* Keeps depth requests under way on every connection. */
int ldma_perf_stream(struct ldma_perf *perf);

/* The shortest time that messages took in a row, from the post of the first to the completion of the last, divided by
 * their number: how perftest defines the peak. Quadratic in the iterations; 0 if their times were not kept. */
double ldma_perf_best_ns(const struct ldma_perf *perf);

/* The longest time in which nothing completed; 0 if times were not kept. */
uint64_t ldma_perf_longest_gap_ns(const struct ldma_perf *perf);

/* Posts the Receives of every connection: once, before the other side begins to SEND. Each is replaced when it was used. */
int ldma_perf_prepare(struct ldma_perf *perf);

/* Receives the SENDs of the other side's stream. May be called again, for another stream. */
int ldma_perf_drain(struct ldma_perf *perf);

/* Gives back what Receives have of pools, once their queue pairs are gone. */
int ldma_perf_release(struct ldma_perf *perf);

/* One at a time, on the first connection; the time of each goes to ret_ns, which may be NULL (SEND and WRITE: there and
 * back). A WRITE is seen by its last byte, which counts. is_first: begins. */
int ldma_perf_ping(struct ldma_perf *perf, bool is_first, uint64_t *ret_ns);

#endif
