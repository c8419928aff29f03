/* SPDX-License-Identifier: BSD-2-Clause */
/* A window whose memory comes and goes while peers use it: what stays is right, what went is never touched again (ASan),
 * and all of it without a race (TSan). */
#include <pthread.h>
#include <sched.h>

#include "device/in_use.h"
#include "memory/window.h"
#include "tests/port/ends.h"

#define GRANULE 4096
#define USERS 2
#define ROUNDS 100
#define CHANGING (USERS * GRANULE) /* from here on memory comes and goes: two granules */
#define CHANGING_BYTES (2 * GRANULE)
#define PEER_KEY 500 /* and the following: of each peer, for the same window */

struct peer {
	pthread_t thread;
	uint32_t number;
	struct end here, there;
	uint8_t near[2 * CHANGING_BYTES], far[64];
};

static struct ldma_window window;
static uint32_t tries, refusals, successes; /* of the side that uses what changes */
static bool is_over;

static bool is_done(void)
{
	return __atomic_load_n(&is_over, __ATOMIC_ACQUIRE);
}

static uint32_t run(struct peer *peer, uint8_t opcode, uint64_t local, uint64_t offset,
		    uint32_t length)
{
	struct ldma_wc wc;

	post_send(&peer->here, opcode, 1, local, length, window.va + offset,
		  PEER_KEY + peer->number);
	assert(ldma_port_wait(peer->here.port, peer->here.cq, 0, PATIENCE_NS) == 1);
	assert(ldma_cq_poll(peer->here.cq, &wc, 1) == 1);
	return wc.status;
}

static void join(struct peer *peer)
{
	connect_end(&peer->here, "127.0.0.2", peer->there.qp->number);
	connect_end(&peer->there, "127.0.0.1", peer->here.qp->number);
}

/* Of what stays: every byte is right. */
static void *use(void *arg)
{
	struct peer *peer = arg;
	uint64_t own = peer->number * GRANULE;

	for (uint32_t i = 0; !is_done(); i++) {
		memset(peer->near, (int)(i + peer->number), GRANULE);
		assert(run(peer, LDMA_WR_RDMA_WRITE, 0, own, GRANULE) == LDMA_WC_SUCCESS);
		assert(run(peer, LDMA_WR_RDMA_READ, GRANULE, own, GRANULE) == LDMA_WC_SUCCESS);
		assert(!memcmp(peer->near, peer->near + GRANULE, GRANULE));
	}
	return NULL;
}

/* Of what changes: it works, or is refused with the access error and nothing else. */
static void *roam(void *arg)
{
	struct peer *peer = arg;

	for (uint32_t i = 0; !is_done(); i++) {
		uint8_t opcode = i % 2 ? LDMA_WR_RDMA_WRITE : LDMA_WR_RDMA_READ;
		uint32_t status = run(peer, opcode, 0, CHANGING, CHANGING_BYTES);

		assert(status == LDMA_WC_SUCCESS || status == LDMA_WC_REM_ACCESS_ERR);
		if (status)
			join(peer);
		__atomic_add_fetch(status ? &refusals : &successes, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&tries, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Until a request has begun and ended meanwhile. */
static void await_request(void)
{
	uint32_t before = __atomic_load_n(&tries, __ATOMIC_ACQUIRE);

	while (__atomic_load_n(&tries, __ATOMIC_ACQUIRE) - before < 2)
		sched_yield();
}

static bool is_used(struct ldma_port *port, uint32_t key)
{
	uint32_t users =
		ldma_device_uses(ldma_port_lock(port), key, window.va + CHANGING, CHANGING_BYTES);

	ldma_port_unlock(port);
	return users != 0;
}

/* Maps memory for a while, then frees it. */
static void change(struct ldma_port *port, uint32_t key)
{
	uint8_t *memory = aligned_alloc(GRANULE, CHANGING_BYTES);

	assert(memory);
	memset(memory, 1, CHANGING_BYTES);
	ldma_port_lock(port);
	assert(!ldma_window_link(&window, CHANGING, memory, CHANGING_BYTES));
	assert(!ldma_window_sync(&window, CHANGING, CHANGING_BYTES));
	ldma_port_unlock(port);
	await_request();
	ldma_port_lock(port);
	assert(!ldma_window_drain(&window, CHANGING, CHANGING_BYTES));
	ldma_port_unlock(port);
	while (is_used(port, key))
		sched_yield();
	ldma_port_lock(port);
	assert(!ldma_window_unlink(&window, CHANGING, CHANGING_BYTES));
	ldma_port_unlock(port);
	memset(memory, 2, CHANGING_BYTES);
	free(memory);
	await_request();
}

int main(void)
{
	struct ldma_port *here = open_port("127.0.0.1"), *there = open_port("127.0.0.2");
	uint8_t *steady = aligned_alloc(GRANULE, CHANGING);
	static struct peer peers[USERS + 1];

	assert(steady);
	assert(!ldma_window_reserve(&window, &ldma_port_lock(there)->iova, 16 * GRANULE, 12, 0));
	assert(!ldma_window_link(&window, 0, steady, CHANGING));
	assert(!ldma_window_sync(&window, 0, CHANGING));
	ldma_port_unlock(there);
	for (uint32_t i = 0; i <= USERS; i++) {
		struct peer *peer = &peers[i];

		peer->number = i;
		open_end(&peer->here, here, peer->near, sizeof(peer->near), 1000 + i);
		open_end(&peer->there, there, peer->far, sizeof(peer->far), 1000 + i);
		assert(!ldma_iova_register_window(&ldma_port_lock(there)->iova, peer->there.pd,
						  &window, 0xf, PEER_KEY + i));
		ldma_port_unlock(there);
		join(peer);
		assert(!pthread_create(&peer->thread, NULL, i < USERS ? use : roam, peer));
	}
	for (uint32_t i = 0; i < ROUNDS; i++)
		change(there, PEER_KEY + USERS);
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i <= USERS; i++) {
		pthread_join(peers[i].thread, NULL);
		ldma_iova_deregister(&ldma_port_lock(there)->iova, PEER_KEY + i);
		ldma_port_unlock(there);
		close_end(&peers[i].here);
		close_end(&peers[i].there);
	}
	assert(successes >= ROUNDS && refusals >= ROUNDS);
	ldma_port_lock(there);
	assert(!ldma_window_destroy(&window, CHANGING));
	ldma_port_unlock(there);
	free(steady);
	ldma_port_close(here);
	ldma_port_close(there);
	return 0;
}
