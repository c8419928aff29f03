/* The loops of `livedma perf`, where Python would be what is measured. */
#ifndef LDMA_PERF_H
#define LDMA_PERF_H

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
	uint8_t opcode; /* LDMA_WR_SEND, LDMA_WR_RDMA_WRITE or LDMA_WR_RDMA_READ */
	uint32_t size, depth;
	uint64_t iterations;             /* of all connections together */
	struct ldma_sge local;           /* what is sent, or read into */
	struct ldma_sge received;        /* where messages of the other side go */
	uint8_t *departing;              /* last byte of the former */
	const volatile uint8_t *landing; /* and of the latter */
	uint64_t spin_ns;
	const volatile int *is_cancelled;

	uint64_t done, started_ns,
		ended_ns; /* results; done counts bytes-carrying operations that completed */
	uint8_t status;   /* of the first completion that failed */
};

/* All return 0, -EIO (a completion failed: status), -ETIMEDOUT (nothing happened for ten seconds) or -ECANCELED. */

/* Keeps depth requests under way on every connection. */
int ldma_perf_stream(struct ldma_perf *perf);

/* Posts depth Receives on every connection: before the other side begins to SEND. */
int ldma_perf_prepare(struct ldma_perf *perf);

/* Receives the SENDs of the other side's stream. */
int ldma_perf_drain(struct ldma_perf *perf);

/* One at a time, on the first connection; the time of each goes to ret_ns (SEND and WRITE: there and back). A WRITE is
 * seen by its last byte, which counts. is_first: begins. */
int ldma_perf_ping(struct ldma_perf *perf, bool is_first, uint64_t *ret_ns);

#endif
