/* SPDX-License-Identifier: BSD-2-Clause */
/* Two devices on loopback, used by many threads at once: what they do must be right, and, under TSan, without a race. */
#include <pthread.h>

#include "tests/port/ends.h"

#define USERS 4
#define ROUNDS 150
#define BYTES 10000

struct user {
	pthread_t thread;
	uint32_t number;
	struct end here, there;
	uint8_t near[3 * BYTES], far[3 * BYTES];
};

/* A WRITE, its READ back, and a SEND, each of other bytes. */
static void *use(void *arg)
{
	struct user *user = arg;
	uint64_t spin_ns =
		user->number % 2 * 1000000; /* some serve the port themselves, some sleep */

	for (uint64_t id = 4; id <= 4 * ROUNDS; id += 4) {
		post_recv(&user->there, id, BYTES, BYTES);
		memset(user->near, (int)(id + user->number), BYTES);
		post_send(&user->here, LDMA_WR_RDMA_WRITE, id + 1, 0, BYTES, 2 * BYTES,
			  user->there.key);
		post_send(&user->here, LDMA_WR_RDMA_READ, id + 2, 2 * BYTES, BYTES, 2 * BYTES,
			  user->there.key);
		post_send(&user->here, LDMA_WR_SEND, id + 3, 0, BYTES, 0, 0);
		for (uint64_t i = 1; i <= 3; i++)
			complete(&user->here, id + i, spin_ns);
		complete(&user->there, id, spin_ns);
		assert(!memcmp(user->near, user->near + 2 * BYTES, BYTES));
		assert(!memcmp(user->near, user->far + BYTES, BYTES));
	}
	return NULL;
}

/* Things come and go meanwhile. */
static void *disturb(void *arg)
{
	struct ldma_port *port = arg;
	uint8_t memory[64];

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct end end;

		open_end(&end, port, memory, sizeof(memory), 77);
		ldma_port_counters(port);
		close_end(&end);
	}
	return NULL;
}

int main(void)
{
	struct ldma_port *here = open_port("127.0.0.1"), *there = open_port("127.0.0.2");
	static struct user users[USERS];
	pthread_t disturber;

	for (uint32_t i = 0; i < USERS; i++) {
		struct user *user = &users[i];

		user->number = i;
		open_end(&user->here, here, user->near, sizeof(user->near), 1000 + i);
		open_end(&user->there, there, user->far, sizeof(user->far), 1000 + i);
		connect_end(&user->here, "127.0.0.2", user->there.qp->number);
		connect_end(&user->there, "127.0.0.1", user->here.qp->number);
		assert(!pthread_create(&user->thread, NULL, use, user));
	}
	assert(!pthread_create(&disturber, NULL, disturb, there));
	pthread_join(disturber, NULL);
	for (uint32_t i = 0; i < USERS; i++) {
		pthread_join(users[i].thread, NULL);
		close_end(&users[i].here);
		close_end(&users[i].there);
	}
	ldma_port_close(here);
	ldma_port_close(there);
	return 0;
}
