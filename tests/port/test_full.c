/* SPDX-License-Identifier: BSD-2-Clause */
/* A socket that is full now and then, with and without segmentation: nothing is lost, nothing goes out twice. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/port/ends.h"

#define PEERS 2
#define ROUNDS 200
#define BIG 8000
#define SMALL 100

static bool has_gso;
static uint32_t calls, refusals;

/* The system's answer to every third attempt. */
static bool is_refused(void)
{
	uint32_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);

	if (call % 3)
		return false;
	__atomic_add_fetch(&refusals, 1, __ATOMIC_RELAXED);
	errno = call % 2 ? EAGAIN : ENOBUFS;
	return true;
}

/* In place of libc's. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (!has_gso) {
		errno = EIO;
		return -1;
	}
	return is_refused() ? -1 : syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to,
	       socklen_t to_bytes)
{
	return is_refused() ? -1 : syscall(SYS_sendto, fd, data, length, flags, to, to_bytes);
}

/* Nobody had to ask for anything again, or got it twice. */
static void check(struct ldma_port *port)
{
	struct ldma_port_counters port_counters = ldma_port_counters(port);
	struct ldma_counters counters = ldma_port_lock(port)->counters;

	ldma_port_unlock(port);
	assert(!port_counters.send_errors);
	assert(!counters.duplicate_request && !counters.out_of_sequence && !counters.ack_timeout &&
	       !counters.packet_seq_err && !counters.dropped_response);
}

/* Short messages before long ones, and peers in turn: many packets do not fit into the train before them. */
static void talk(struct end *here, struct end *there, uint8_t *near, uint8_t far[PEERS][2 * BIG])
{
	for (uint64_t id = 1; id <= ROUNDS; id++) {
		memset(near, (int)id, BIG);
		for (uint32_t i = 0; i < PEERS; i++) {
			post_send(&here[i], LDMA_WR_RDMA_WRITE, id, 0, SMALL, 0, there[i].key);
			post_send(&here[i], LDMA_WR_RDMA_WRITE, id, 0, BIG, BIG, there[i].key);
		}
		for (uint32_t i = 0; i < PEERS; i++) {
			complete(&here[i], id, 0);
			complete(&here[i], id, 0);
			ldma_port_lock(there[i].port); /* whose thread wrote it */
			assert(!memcmp(far[i], near, SMALL) && !memcmp(far[i] + BIG, near, BIG));
			ldma_port_unlock(there[i].port);
		}
	}
}

int main(void)
{
	static const char *const addresses[PEERS] = {"127.0.0.8", "127.0.0.9"};
	static uint8_t near[BIG], far[PEERS][2 * BIG];

	for (int turn = 0; turn < 2; turn++) {
		struct ldma_port *port = open_port("127.0.0.7"), *peers[PEERS];
		struct end here[PEERS], there[PEERS];

		has_gso = !turn;
		refusals = 0;
		for (uint32_t i = 0; i < PEERS; i++) {
			peers[i] = open_port(addresses[i]);
			open_end(&here[i], port, near, sizeof(near), 1 + i);
			open_end(&there[i], peers[i], far[i], sizeof(far[i]), 1);
			connect_end(&here[i], addresses[i], there[i].qp->number);
			connect_end(&there[i], "127.0.0.7", here[i].qp->number);
		}
		talk(here, there, near, far);
		assert(refusals > ROUNDS);
		check(port);
		for (uint32_t i = 0; i < PEERS; i++) {
			check(peers[i]);
			close_end(&here[i]);
			close_end(&there[i]);
			ldma_port_close(peers[i]);
		}
		ldma_port_close(port);
	}
	printf("the socket was full, and all came\n");
	return 0;
}
