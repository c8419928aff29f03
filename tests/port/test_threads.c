/* Two devices on loopback, used by many threads at once: what they do must be right, and, under TSan, without a race. */
#undef NDEBUG
#include <arpa/inet.h>
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port.h"

#define USERS 4
#define ROUNDS 150
#define BYTES 10000
#define PATIENCE_NS UINT64_C(60000000000)

struct user {
	pthread_t thread;
	uint32_t number;
	struct ldma_port *ports[2];
	struct ldma_pd *pds[2];
	struct ldma_qp *qps[2];
	struct ldma_cq *cqs[2];
	uint8_t *memory[2]; /* three parts of BYTES */
	uint32_t keys[2];
};

static struct ldma_port *open_port(const char *address)
{
	struct ldma_port_config config = {
		.device = {.max_qp = 64, .max_region = 64},
		.address.ip_version = 4,
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

static struct ldma_qp *create_qp(struct ldma_port *port, struct ldma_pd *pd, struct ldma_cq *cq)
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

static void connect_qp(struct user *user, int side, const char *peer)
{
	struct ldma_qp_attr attr = {
		.access = 0xf,
		.pkey = 0xffff,
		.mtu = 1024,
		.dest_qp = user->qps[!side]->number,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.timeout = 20, /* a sanitizer is slow */
		.retry_count = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
	};
	uint8_t address[16] = {0};

	inet_pton(AF_INET, peer, address);
	attr.path = ldma_port_path(user->ports[side], address);
	ldma_port_lock(user->ports[side]);
	for (int state = LDMA_QP_INIT; state <= LDMA_QP_RTS; state++)
		assert(!ldma_qp_modify(user->qps[side], (enum ldma_qp_state)state, &attr));
	ldma_port_unlock(user->ports[side]);
}

static void set_up(struct user *user, uint32_t number, struct ldma_port *const *ports)
{
	user->number = number;
	for (int side = 0; side < 2; side++) {
		struct ldma_device *device;

		user->ports[side] = ports[side];
		user->pds[side] = ldma_pd_create();
		user->cqs[side] = ldma_port_create_cq(ports[side], 64);
		user->qps[side] = create_qp(ports[side], user->pds[side], user->cqs[side]);
		user->memory[side] = calloc(3, BYTES);
		user->keys[side] = 1000 + number;
		device = ldma_port_lock(ports[side]);
		assert(!ldma_iova_register(&device->iova, user->pds[side], user->memory[side], 0,
					   3 * BYTES, 0xf, user->keys[side]));
		ldma_port_unlock(ports[side]);
	}
	connect_qp(user, 0, "127.0.0.2");
	connect_qp(user, 1, "127.0.0.1");
}

static void take_one(struct user *user, int side, uint64_t wr_id)
{
	struct ldma_wc wc;

	/* Some serve the port themselves, some sleep. */
	assert(ldma_port_wait(user->ports[side], user->cqs[side], user->number % 2 * 1000000,
			      PATIENCE_NS) == 1);
	assert(ldma_cq_poll(user->cqs[side], &wc, 1) == 1);
	if (wc.status)
		fprintf(stderr, "user %u, side %d: status %u\n", user->number, side, wc.status);
	assert(wc.status == LDMA_WC_SUCCESS && wc.wr_id == wr_id);
}

static void post(struct user *user, uint8_t opcode, uint64_t wr_id, uint64_t local, uint64_t remote)
{
	struct ldma_sge sge = {.va = local, .length = BYTES, .lkey = user->keys[0]};
	struct ldma_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.sge = &sge,
		.sge_count = 1,
		.flags = LDMA_SEND_SIGNALED,
		.remote_va = remote,
		.rkey = user->keys[1],
	};

	ldma_port_lock(user->ports[0]);
	assert(!ldma_qp_post_send(user->qps[0], &wr));
	ldma_port_unlock(user->ports[0]);
}

/* A WRITE, its READ back, and a SEND, each of other bytes. */
static void *use(void *arg)
{
	struct user *user = arg;

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		struct ldma_sge sge = {.va = BYTES, .length = BYTES, .lkey = user->keys[1]};
		struct ldma_recv_wr receive = {.wr_id = 4 * round, .sge = &sge, .sge_count = 1};

		ldma_port_lock(user->ports[1]);
		assert(!ldma_qp_post_recv(user->qps[1], &receive));
		ldma_port_unlock(user->ports[1]);
		memset(user->memory[0], (int)(round + user->number), BYTES);
		post(user, LDMA_WR_RDMA_WRITE, 4 * round + 1, 0, 2 * BYTES);
		post(user, LDMA_WR_RDMA_READ, 4 * round + 2, 2 * BYTES, 2 * BYTES);
		post(user, LDMA_WR_SEND, 4 * round + 3, 0, 0);
		for (uint64_t i = 1; i <= 3; i++)
			take_one(user, 0, 4 * round + i);
		take_one(user, 1, 4 * round);
		assert(!memcmp(user->memory[0], user->memory[0] + 2 * BYTES, BYTES));
		assert(!memcmp(user->memory[0], user->memory[1] + BYTES, BYTES));
	}
	return NULL;
}

static void *disturb(void *arg)
{
	struct user *user = arg;
	uint8_t memory[64];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct ldma_cq *cq = ldma_port_create_cq(user->ports[1], 4);
		struct ldma_qp *qp = create_qp(user->ports[1], user->pds[1], cq);
		struct ldma_device *device = ldma_port_lock(user->ports[1]);

		assert(!ldma_iova_register(&device->iova, user->pds[1], memory, 0, sizeof(memory),
					   1, 77));
		assert(!ldma_iova_deregister(&device->iova, 77));
		ldma_device_destroy_qp(qp);
		ldma_port_unlock(user->ports[1]);
		assert(!ldma_port_destroy_cq(user->ports[1], cq));
		ldma_port_counters(user->ports[0]);
	}
	return NULL;
}

int main(void)
{
	struct ldma_port *ports[2] = {open_port("127.0.0.1"), open_port("127.0.0.2")};
	struct user users[USERS];
	pthread_t disturber;

	for (uint32_t i = 0; i < USERS; i++)
		set_up(&users[i], i, ports);
	for (uint32_t i = 0; i < USERS; i++)
		assert(!pthread_create(&users[i].thread, NULL, use, &users[i]));
	assert(!pthread_create(&disturber, NULL, disturb, &users[0]));
	pthread_join(disturber, NULL);
	for (uint32_t i = 0; i < USERS; i++)
		pthread_join(users[i].thread, NULL);
	for (uint32_t i = 0; i < USERS; i++) {
		for (int side = 0; side < 2; side++) {
			ldma_port_lock(ports[side]);
			ldma_device_destroy_qp(users[i].qps[side]);
			ldma_port_unlock(ports[side]);
			assert(!ldma_port_destroy_cq(ports[side], users[i].cqs[side]));
		}
	}
	ldma_port_close(ports[0]);
	ldma_port_close(ports[1]);
	for (uint32_t i = 0; i < USERS; i++) {
		for (int side = 0; side < 2; side++) {
			assert(!ldma_pd_destroy(users[i].pds[side]));
			free(users[i].memory[side]);
		}
	}
	return 0;
}
