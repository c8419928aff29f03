/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports and queue pairs for tests: a mistake of the test itself ends it. */
#ifndef LDMA_TEST_ENDS_H
#define LDMA_TEST_ENDS_H

#undef NDEBUG
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/port.h"

#define PATIENCE_NS UINT64_C(60000000000)

/* One side of a connection, with a region over its memory that starts at address 0. */
struct end {
	struct ldma_port *port;
	struct ldma_pd *pd;
	struct ldma_cq *cq;
	struct ldma_qp *qp;
	uint32_t key;
};

static inline struct ldma_port *open_port(const char *address)
{
	struct ldma_port_config config = {
		.device = {.max_qp = 64, .max_region = 64},
		.address.ip_version = 4,
		.kind = LDMA_PORT_UDP,
		.spin_us = 20,
	};
	struct ldma_port *port;
	int error;

	inet_pton(AF_INET, address, config.address.bytes);
	error = ldma_port_open(&config, &port);
	if (error)
		fprintf(stderr, "%s: %s\n", address, strerror(-error));
	assert(!error);
	return port;
}

static inline struct ldma_qp *create_qp(struct ldma_port *port, struct ldma_pd *pd,
					struct ldma_cq *cq)
{
	struct ldma_qp_init init = {
		.type = LDMA_QP_RC,
		.pd = pd,
		.send_cq = cq,
		.recv_cq = cq,
		.max_send = 8,
		.max_recv = 8,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct ldma_qp *qp;

	assert(!ldma_device_create_qp(ldma_port_lock(port), &init, &qp));
	ldma_port_unlock(port);
	return qp;
}

static inline void open_end(struct end *end, struct ldma_port *port, void *memory, size_t size,
			    uint32_t key)
{
	*end = (struct end){.port = port, .pd = ldma_pd_create(), .key = key};
	end->cq = ldma_port_create_cq(port, 64);
	end->qp = create_qp(port, end->pd, end->cq);
	assert(!ldma_iova_register(&ldma_port_lock(port)->iova, end->pd, memory, 0, size, 0xf,
				   key));
	ldma_port_unlock(port);
}

/* From any state to RTS. */
static inline void connect_end(struct end *end, const char *peer, uint32_t peer_qp)
{
	struct ldma_qp_attr attr = {
		.access = 0xf,
		.pkey = 0xffff,
		.mtu = 1024,
		.dest_qp = peer_qp,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.timeout = 20, /* a sanitizer is slow */
		.retry_count = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
	};
	uint8_t address[16] = {0};

	inet_pton(AF_INET, peer, address);
	attr.path = ldma_port_path(end->port, address);
	ldma_port_lock(end->port);
	for (int state = LDMA_QP_RESET; state <= LDMA_QP_RTS; state++)
		assert(!ldma_qp_modify(end->qp, (enum ldma_qp_state)state, &attr));
	ldma_port_unlock(end->port);
}

static inline void post_send(struct end *end, uint8_t opcode, uint64_t wr_id, uint64_t local,
			     uint32_t length, uint64_t remote, uint32_t rkey)
{
	struct ldma_sge sge = {.va = local, .length = length, .lkey = end->key};
	struct ldma_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.sge = &sge,
		.sge_count = 1,
		.flags = LDMA_SEND_SIGNALED,
		.remote_va = remote,
		.rkey = rkey,
	};

	ldma_port_lock(end->port);
	assert(!ldma_qp_post_send(end->qp, &wr));
	ldma_port_unlock(end->port);
}

static inline void post_recv(struct end *end, uint64_t wr_id, uint64_t local, uint32_t length)
{
	struct ldma_sge sge = {.va = local, .length = length, .lkey = end->key};
	struct ldma_recv_wr wr = {.wr_id = wr_id, .sge = &sge, .sge_count = 1};

	ldma_port_lock(end->port);
	assert(!ldma_qp_post_recv(end->qp, &wr));
	ldma_port_unlock(end->port);
}

/* The next completion has to be this one, and a success. */
static inline void complete(struct end *end, uint64_t wr_id, uint64_t spin_ns)
{
	struct ldma_wc wc;

	assert(ldma_port_wait(end->port, end->cq, spin_ns, PATIENCE_NS) == 1);
	assert(ldma_cq_poll(end->cq, &wc, 1) == 1);
	if (wc.status)
		fprintf(stderr, "request %lu: status %u\n", (unsigned long)wc.wr_id, wc.status);
	assert(wc.status == LDMA_WC_SUCCESS && wc.wr_id == wr_id);
}

static inline void close_end(struct end *end)
{
	ldma_port_lock(end->port);
	ldma_device_destroy_qp(end->qp);
	ldma_port_unlock(end->port);
	assert(!ldma_port_destroy_cq(end->port, end->cq));
	ldma_iova_deregister(&ldma_port_lock(end->port)->iova, end->key);
	ldma_port_unlock(end->port);
	assert(!ldma_pd_destroy(end->pd));
}

#endif
