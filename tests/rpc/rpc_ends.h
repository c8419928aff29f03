/* SPDX-License-Identifier: BSD-2-Clause */
/* Both sides of RPC-over-RDMA for tests in C: a server whose pools are plain memory, and a client that makes its headers by
 * hand. A mistake of the test itself ends it. */
#ifndef LDMA_TEST_RPC_ENDS_H
#define LDMA_TEST_RPC_ENDS_H

#include "base/bytes.h"
#include "rpc/server.h"
#include "tests/port/ends.h"

#define INLINE_BYTES 1024
#define DATA_BYTES 4096
#define CREDITS 16
#define RING 64

/* A connection of the server's. */
struct served {
	struct ldma_port *port;
	struct ldma_pd *pd;
	struct ldma_qp *qp;
	struct ldma_pool *receives, *data;
	struct ldma_endpoint *endpoint;
	uint8_t *memory;
	uint32_t key;
};

/* The other side: memory at address 0 of which 16 KiB are for SENDs, 16 KiB for Receives, the rest for chunks. */
struct client {
	struct end end;
	uint8_t *memory;
	size_t size;
};

enum { CLIENT_SENDS = 0, CLIENT_RECEIVES = 16384, CLIENT_DATA = 32768 };

static inline uint64_t test_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline struct ldma_qp *create_ring(struct ldma_port *port, struct ldma_pd *pd,
					  struct ldma_cq *cq, uint32_t max_send_sge)
{
	struct ldma_qp_init init = {
		.type = LDMA_QP_RC,
		.pd = pd,
		.send_cq = cq,
		.recv_cq = cq,
		.max_send = RING,
		.max_recv = RING,
		.max_send_sge = max_send_sge,
		.max_recv_sge = 1,
	};
	struct ldma_qp *qp;

	assert(!ldma_device_create_qp(ldma_port_lock(port), &init, &qp));
	ldma_port_unlock(port);
	return qp;
}

static inline struct ldma_pool *create_pool(uint8_t *memory, uint64_t va, uint32_t key,
					    uint32_t bytes, uint32_t buffers)
{
	struct ldma_pool_config config = {
		.buffer_bytes = bytes, .shard_buffers = buffers, .now_ns = test_now_ns};
	struct ldma_pool_shard shard = {
		.memory = memory, .va = va, .lkey = key, .rkey = key, .buffers = buffers};
	struct ldma_pool *pool;
	uint32_t number;

	assert(!ldma_pool_create(&config, &pool));
	assert(!ldma_pool_add_shard(pool, &shard, &number));
	return pool;
}

/* In INIT, with its Receives; data_buffers: so few that calls have to wait. */
static inline void open_served(struct served *served, struct ldma_service *service,
			       struct ldma_port *port, struct ldma_cq *cq, uint32_t key,
			       uint32_t data_buffers)
{
	size_t receive_size = 2 * CREDITS * INLINE_BYTES;
	size_t size = receive_size + data_buffers * DATA_BYTES;
	struct ldma_endpoint_config config = {
		.receive_bytes = INLINE_BYTES,
		.data_bytes = DATA_BYTES,
		.number = key,
		.credits = CREDITS,
		.credits_max = CREDITS,
		.send_inline = INLINE_BYTES,
		.completions = 2 * RING,
		.stall_ns = UINT64_C(3000000000),
		.message_bytes = 1 << 17,
		.gathered_bytes = 1 << 18,
		.limits = {.chunks = 4, .segments = 16, .list_bytes = 1 << 17},
		.owner = served,
	};
	struct ldma_qp_attr attr = {.access = 0xf, .pkey = 0xffff};

	*served = (struct served){.port = port, .pd = ldma_pd_create(), .key = key};
	assert(!posix_memalign((void **)&served->memory, 4096, size));
	assert(!ldma_iova_register(&ldma_port_lock(port)->iova, served->pd, served->memory, 0, size,
				   0xf, key));
	ldma_port_unlock(port);
	served->qp = create_ring(port, served->pd, cq, LDMA_MAX_SGE);
	ldma_port_lock(port);
	assert(!ldma_qp_modify(served->qp, LDMA_QP_INIT, &attr));
	ldma_port_unlock(port);
	served->receives = create_pool(served->memory, 0, key, INLINE_BYTES, 2 * CREDITS);
	served->data = create_pool(served->memory + receive_size, receive_size, key, DATA_BYTES,
				   data_buffers);
	config.qp = served->qp;
	config.receive_pool = served->receives;
	config.data_pool = served->data;
	assert(!ldma_endpoint_create(service, &config, &served->endpoint));
}

static inline struct ldma_qp_attr connected_attr(struct ldma_port *port, const char *peer,
						 uint32_t peer_qp)
{
	uint8_t address[16] = {0};
	struct ldma_qp_attr attr = {
		.access = 0xf,
		.pkey = 0xffff,
		.mtu = 4096,
		.dest_qp = peer_qp,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.timeout = 18, /* a sanitizer is slow */
		.retry_count = 2,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
	};

	inet_pton(AF_INET, peer, address);
	attr.path = ldma_port_path(port, address);
	return attr;
}

static inline void connect_served(struct served *served, const char *peer, uint32_t peer_qp)
{
	struct ldma_qp_attr attr = connected_attr(served->port, peer, peer_qp);

	ldma_port_lock(served->port);
	assert(!ldma_qp_modify(served->qp, LDMA_QP_RTR, &attr));
	assert(!ldma_qp_modify(served->qp, LDMA_QP_RTS, &attr));
	ldma_port_unlock(served->port);
	ldma_endpoint_start(served->endpoint);
}

/* All that it took has to be back. */
static inline void free_served(struct served *served)
{
	struct ldma_pool_stats stats;

	ldma_pool_get_stats(served->receives, &stats);
	assert(stats.free == stats.buffers && !stats.refused);
	ldma_pool_get_stats(served->data, &stats);
	assert(stats.free == stats.buffers && !stats.refused && !stats.waiting[0]);
	ldma_port_lock(served->port);
	ldma_device_destroy_qp(served->qp);
	ldma_port_unlock(served->port);
	ldma_iova_deregister(&ldma_port_lock(served->port)->iova, served->key);
	ldma_port_unlock(served->port);
	ldma_endpoint_put(served->endpoint);
	ldma_pool_destroy(served->receives);
	ldma_pool_destroy(served->data);
	assert(!ldma_pd_destroy(served->pd));
	free(served->memory);
}

static inline void open_client(struct client *client, struct ldma_port *port, size_t size,
			       uint32_t key)
{
	*client = (struct client){.memory = calloc(1, size), .size = size};
	client->end = (struct end){.port = port, .pd = ldma_pd_create(), .key = key};
	client->end.cq = ldma_port_create_cq(port, 4 * RING);
	client->end.qp = create_ring(port, client->end.pd, client->end.cq, 1);
	assert(!ldma_iova_register(&ldma_port_lock(port)->iova, client->end.pd, client->memory, 0,
				   size, 0xf, key));
	ldma_port_unlock(port);
}

static inline void connect_client(struct client *client, const char *peer, uint32_t peer_qp)
{
	struct ldma_qp_attr attr = connected_attr(client->end.port, peer, peer_qp);

	ldma_port_lock(client->end.port);
	for (int state = LDMA_QP_INIT; state <= LDMA_QP_RTS; state++)
		assert(!ldma_qp_modify(client->end.qp, (enum ldma_qp_state)state, &attr));
	ldma_port_unlock(client->end.port);
	for (uint32_t i = 0; i < 16; i++)
		post_recv(&client->end, i, CLIENT_RECEIVES + i * INLINE_BYTES, INLINE_BYTES);
}

static inline void free_client(struct client *client)
{
	close_end(&client->end);
	free(client->memory);
}

#endif
