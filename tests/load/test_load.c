/* SPDX-License-Identifier: BSD-2-Clause */
/* The load as its threads see it: one runs it, others add sessions, look and call; servers answer, over TCP and over RDMA,
 * some of them nonsense. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load/load.h"
#include "rpc/caller.h"
#include "rpc/rpcrdma.h"
#include "tests/load/load_server.h"
#include "tests/port/ends.h"

#define CALLS 8
#define INLINE 1024
#define BUFFERS 8 /* Receives of the server */
#define KEY 0x3333
#define DATA_KEY 0x4444
#define ENOUGH 300

static bool lies;     /* one reply in twenty is spoilt */
static bool verifies; /* what the load does; data is none of its own */
static struct server server = {.target = 63};

static void spoil(uint8_t *reply, uint32_t length)
{
	if (lies && random() % 20 == 0)
		put32(reply + random() % (length / 4) * 4, (uint32_t)random() % 70);
	server.target = lies ? (uint32_t)random() % 6 : 63;
}

static void *run(void *arg)
{
	ldma_load_run(arg);
	return NULL;
}

static void nap(void)
{
	struct timespec pause = {.tv_nsec = 1000000};

	nanosleep(&pause, NULL);
}

static uint64_t done_by(struct ldma_load *load)
{
	static struct ldma_load_figures figures;

	ldma_load_figures(load, &figures);
	return figures.counters.reads + figures.counters.writes + figures.counters.errors;
}

/* Adds sessions and looks, until there was enough. */
static void use(struct ldma_load *load)
{
	struct ldma_load_session_config config = {
		.slots = 4,
		.file_bytes = sizeof(server.file),
		.target = server_target,
	};
	static struct ldma_load_figures figures;
	static struct ldma_load_session_figures session;
	uint64_t done = 0, before;
	pthread_t thread;

	/* A reply that was spoilt may answer nobody, so lies can make all slots wait for ever. */
	assert(!pthread_create(&thread, NULL, run, load));
	ldma_load_begin(load);
	for (uint32_t i = 0; i < 3; i++) {
		/* With the same seed: they write the same data to the same file, of which they know nothing. */
		config.seed = 5;
		assert(ldma_load_add_session(load, &config) == (int)i);
		nap();
	}
	/* What the first ones did while others were on their way says nothing of all of them together. */
	before = done_by(load);
	for (uint32_t i = 0; done < ENOUGH && i < (lies ? 500 : 60000); i++) {
		done = done_by(load) - before;
		for (uint32_t j = 0; j < 3; j++)
			assert(!ldma_load_session_figures(load, j, &session));
		nap();
	}
	assert(ldma_load_session_figures(load, 3, &session) == -EINVAL);
	ldma_load_stop(load);
	for (uint32_t i = 0; i < 100; i++) {
		ldma_load_figures(load, &figures);
		if (figures.open)
			nap();
	}
	ldma_load_end(load);
	pthread_join(thread, NULL);
	ldma_load_figures(load, &figures);
	assert(lies || (done >= ENOUGH && !figures.open));
	assert(lies || (figures.counters.errors > 0) == verifies);
}

/* Over TCP. */

static bool read_all(int fd, void *data, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t part = read(fd, (uint8_t *)data + got, length - got);

		if (part <= 0)
			return false;
		got += (size_t)part;
	}
	return true;
}

static void *serve_stream(void *arg)
{
	static uint8_t call[LDMA_IO_CALL_MOST + SERVER_SIZE], reply[4 + SERVER_REPLY_MOST];
	int fd = *(int *)arg;
	uint8_t mark[4];

	while (read_all(fd, mark, 4) && (get32(mark) & 0x7fffffff) <= sizeof(call) &&
	       read_all(fd, call, get32(mark) & 0x7fffffff)) {
		uint32_t length = server_reply(&server, call, true, false, reply + 4);

		spoil(reply + 4, length);
		put32(reply, 0x80000000u | length);
		if (send(fd, reply, length + 4, MSG_NOSIGNAL) < 0)
			break;
	}
	return NULL;
}

static void test_tcp(uint8_t rw, uint64_t interval_ns)
{
	struct ldma_load_config config = {
		.size = SERVER_SIZE, .depth = 4, .rw = rw, .interval_ns = interval_ns};
	struct ldma_load *load;
	pthread_t thread;
	int ends[2];

	assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	assert(!ldma_load_create(&config, &load));
	assert(ldma_load_add_tcp(load, ends[0]) == 0);
	assert(!pthread_create(&thread, NULL, serve_stream, &ends[1]));
	use(load);
	shutdown(ends[1], SHUT_RDWR);
	pthread_join(thread, NULL);
	ldma_load_destroy(load);
	close(ends[0]);
	close(ends[1]);
}

/* Over RDMA: data of WRITEs is not fetched, that of READs is written. */

struct rdma_server {
	struct end end;
	pthread_t thread;
	bool is_over;
	uint8_t memory[2 * BUFFERS * INLINE + SERVER_SIZE]; /* calls, replies, data */
};

static struct rdma_server rdma;
static uint8_t inline_memory[(2 * CALLS + LDMA_CALLER_SPARE) * INLINE];
static uint8_t data_memory[CALLS * 16384];

/* Without a completion, as soon as there is room for it. */
static void post(uint8_t opcode, uint64_t local, uint32_t length, uint64_t remote, uint32_t rkey)
{
	struct ldma_sge sge = {.va = local, .length = length, .lkey = KEY};
	struct ldma_send_wr wr = {
		.opcode = opcode, .sge = &sge, .sge_count = 1, .remote_va = remote, .rkey = rkey};
	int error;

	do {
		ldma_port_lock(rdma.end.port);
		error = ldma_qp_post_send(rdma.end.qp, &wr);
		ldma_port_unlock(rdma.end.port);
		if (error == -ENOMEM)
			nap();
	} while (error == -ENOMEM);
	assert(!error);
}

static void answer(uint64_t number, uint32_t length)
{
	static const struct ldma_rpcrdma_limits limits = {4, 8, 1 << 20};
	const uint8_t *data = rdma.memory + number * INLINE;
	uint64_t at = (BUFFERS + number) * INLINE;
	struct ldma_rpcrdma_segment segments[8];
	struct ldma_rpcrdma header;
	uint32_t bytes, placed = 0;

	assert(!ldma_rpcrdma_decode(data, length, &limits, segments, 8, &header));
	if (header.write_count) {
		placed = segments[header.writes[0].first].length;
		post(LDMA_WR_RDMA_WRITE, 2 * BUFFERS * INLINE, placed,
		     segments[header.writes[0].first].offset,
		     segments[header.writes[0].first].handle);
	}
	bytes = ldma_rpcrdma_reply_bytes(&header, false);
	ldma_rpcrdma_encode_reply(&header, CALLS / 2, placed, false, 0, rdma.memory + at);
	bytes += server_reply(&server, data + header.header_bytes, false, placed,
			      rdma.memory + at + bytes);
	spoil(rdma.memory + at, bytes);
	post(LDMA_WR_SEND, at, bytes, 0, 0);
}

static void *serve_rdma(void *arg)
{
	struct ldma_wc wc;

	(void)arg;
	while (!__atomic_load_n(&rdma.is_over, __ATOMIC_ACQUIRE)) {
		if (ldma_port_wait(rdma.end.port, rdma.end.cq, 0, 1000000) < 1)
			continue;
		if (!ldma_cq_poll(rdma.end.cq, &wc, 1) || wc.opcode != LDMA_WC_RECV || wc.status)
			continue;
		answer(wc.wr_id, wc.byte_length);
		post_recv(&rdma.end, wc.wr_id, wc.wr_id * INLINE, INLINE);
	}
	return NULL;
}

static struct ldma_qp *caller_qp(struct end *end)
{
	struct ldma_qp_init init = {
		.type = LDMA_QP_RC,
		.pd = end->pd,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.max_send = 2 * CALLS,
		.max_recv = CALLS + LDMA_CALLER_SPARE,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct ldma_device *device = ldma_port_lock(end->port);
	struct ldma_qp *qp;

	ldma_device_destroy_qp(end->qp);
	assert(!ldma_iova_register(&device->iova, end->pd, data_memory, 0, sizeof(data_memory), 0xf,
				   DATA_KEY));
	assert(!ldma_device_create_qp(device, &init, &qp));
	ldma_port_unlock(end->port);
	return qp;
}

static void test_rdma(struct ldma_port *near, struct ldma_port *far, uint8_t rw)
{
	struct end end;
	struct ldma_load_config config = {
		.port = near, .size = SERVER_SIZE, .depth = 4, .rw = rw, .verifies = verifies};
	struct ldma_load_rdma link = {
		.calls = CALLS,
		.send_bytes = INLINE,
		.receive_bytes = INLINE,
		.inline_memory = inline_memory,
		.inline_key = KEY,
		.data_memory = data_memory,
		.data_key = DATA_KEY,
	};
	static struct ldma_load_figures figures;
	struct ldma_load *load;

	assert(sizeof(data_memory) == (size_t)CALLS * ldma_load_buffer_bytes(SERVER_SIZE));
	open_end(&end, near, inline_memory, sizeof(inline_memory), KEY);
	open_end(&rdma.end, far, rdma.memory, sizeof(rdma.memory), KEY);
	link.qp = end.qp = caller_qp(&end);
	config.cq = end.cq;
	rdma.is_over = false;
	connect_end(&end, "127.0.0.2", rdma.end.qp->number);
	connect_end(&rdma.end, "127.0.0.1", end.qp->number);
	for (uint32_t i = 0; i < BUFFERS; i++)
		post_recv(&rdma.end, i, (uint64_t)i * INLINE, INLINE);
	assert(!ldma_load_create(&config, &load));
	assert(ldma_load_add_rdma(load, &link) == 0);
	assert(!pthread_create(&rdma.thread, NULL, serve_rdma, NULL));
	use(load);
	ldma_load_figures(load, &figures);
	assert(lies || figures.granted == CALLS / 2);
	/* Twelve slots, four credits; but whose data is found to be wrong rests for a while. */
	assert(lies || verifies || figures.counters.waited);
	assert(lies || figures.counters.wrong == figures.counters.errors);
	__atomic_store_n(&rdma.is_over, true, __ATOMIC_RELEASE);
	pthread_join(rdma.thread, NULL);
	ldma_iova_deregister(&ldma_port_lock(near)->iova, DATA_KEY);
	ldma_port_unlock(near);
	close_end(&end);
	close_end(&rdma.end);
	ldma_load_destroy(load);
}

int main(void)
{
	struct ldma_port *near = open_port("127.0.0.1"), *far = open_port("127.0.0.2");

	srandom(3);
	for (int i = 0; i < 2; i++, lies = true) {
		test_tcp(LDMA_LOAD_READ, 0);
		test_tcp(LDMA_LOAD_MIX, 0);
		test_tcp(LDMA_LOAD_MIX, 200000);
		test_rdma(near, far, LDMA_LOAD_READ);
		test_rdma(near, far, LDMA_LOAD_WRITE);
	}
	lies = false;
	verifies = true;
	test_rdma(near, far, LDMA_LOAD_READ);
	ldma_port_close(near);
	ldma_port_close(far);
	return 0;
}
