/* SPDX-License-Identifier: BSD-2-Clause */
/* A server and, in a process of its own, a client that READs one block after the other over RDMA. The server is built with
 * -finstrument-functions: it writes how often each function ran per READ, as lines of an address and a number.
 * test_read_path.py builds it and gives the addresses their names. */
#include "nfs/accelerator.h"
#include "tests/nfs/messages.h"
#include "tests/rpc/rpc_ends.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVER "127.0.61.1"
#define CLIENT "127.0.61.2"
#define READS 200
#define NOT_COUNTED __attribute__((no_instrument_function))
#define PLACES 8192 /* more than there are functions */

void __cyg_profile_func_enter(void *function, void *caller) NOT_COUNTED;
void __cyg_profile_func_exit(void *function, void *caller) NOT_COUNTED;

static bool is_counting;
static void *functions[PLACES];
static uint32_t counts[PLACES];

void __cyg_profile_func_enter(void *function, void *caller)
{
	uint32_t place = (uint32_t)((uintptr_t)function >> 2) % PLACES;

	(void)caller;
	if (!__atomic_load_n(&is_counting, __ATOMIC_RELAXED))
		return;
	for (;; place = (place + 1) % PLACES) {
		void *found = NULL;

		if (__atomic_compare_exchange_n(&functions[place], &found, function, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
		    found == function)
			break;
	}
	__atomic_add_fetch(&counts[place], 1, __ATOMIC_RELAXED);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)function;
	(void)caller;
}

static const uint8_t session_id[LDMA_SESSION_ID_BYTES] = "the one session",
		     other[12] = "an open file";

static void tell(int process, uint32_t number)
{
	assert(write(process, &number, sizeof(number)) == sizeof(number));
}

static uint32_t hear(int process)
{
	uint32_t number;

	assert(read(process, &number, sizeof(number)) == sizeof(number));
	return number;
}

static void send_read(struct client *client, uint32_t xid)
{
	struct ldma_rpcrdma_segment segment = {
		.offset = CLIENT_DATA, .handle = client->end.key, .length = DATA_BYTES};
	struct ldma_rpcrdma header = {.xid = xid,
				      .version = LDMA_RPCRDMA_VERSION,
				      .credits = CREDITS,
				      .segments = &segment,
				      .segment_count = 1,
				      .write_count = 1,
				      .writes = {{.count = 1, .length = DATA_BYTES}}};
	struct asked asked = {.xid = xid,
			      .uid = 1000,
			      .session_id = session_id,
			      .sequence = xid,
			      .highest = 7,
			      .other = other,
			      .seqid = 1,
			      .count = DATA_BYTES};
	uint32_t length = ldma_rpcrdma_bytes(&header);
	struct message message;

	ldma_rpcrdma_encode(&header, client->memory + CLIENT_SENDS);
	make_message(&message, LDMA_NFS_OP_READ, &asked);
	memcpy(client->memory + CLIENT_SENDS + length, message.bytes, message.length);
	post_send(&client->end, LDMA_WR_SEND, READS, CLIENT_SENDS, length + message.length, 0, 0);
}

/* Waits for the reply, and for the SEND of the call. */
static void wait_for_reply(struct client *client)
{
	struct ldma_wc wc;

	for (int left = 2; left; left--) {
		while (!ldma_cq_poll(client->end.cq, &wc, 1))
			ldma_port_wait(client->end.port, client->end.cq, 0, PATIENCE_NS);
		assert(wc.status == LDMA_WC_SUCCESS);
		if (wc.wr_id == READS)
			continue;
		/* The reply's header has one write chunk, and the status is behind XID, type, verdicts and verifier. */
		assert(!get32(client->memory + CLIENT_RECEIVES + wc.wr_id * INLINE_BYTES + 52 +
			      24));
		post_recv(&client->end, wc.wr_id, CLIENT_RECEIVES + wc.wr_id * INLINE_BYTES,
			  INLINE_BYTES);
	}
	for (uint32_t i = 0; i < DATA_BYTES; i++)
		assert(client->memory[CLIENT_DATA + i] == (uint8_t)(i * 7));
	memset(client->memory + CLIENT_DATA, 0, DATA_BYTES);
}

static void be_client(int server)
{
	struct client client;

	open_client(&client, open_port(CLIENT), CLIENT_DATA + DATA_BYTES, 9);
	tell(server, client.end.qp->number);
	connect_client(&client, SERVER, hear(server));
	tell(server, 0);
	for (uint32_t i = 1; i <= 2 * READS; i++) {
		if (i == 1 || i == READS + 1)
			hear(server);
		send_read(&client, i);
		wait_for_reply(&client);
		if (i == READS || i == 2 * READS)
			tell(server, 0);
	}
	_exit(0);
}

/* An accelerator with one session, and one open file. */
static struct ldma_accelerator *open_store(const char *path)
{
	static struct ldma_changes changes;
	static uint64_t verifier;
	struct ldma_accelerator_config config = {
		.threads = 1, .operations = 8, .read_max = 1 << 20};
	struct ldma_grant_access access = {.seqid = 1, .is_readable = true};
	struct ldma_slots *slots = ldma_slots_create(session_id, 77, 8, 4096);
	struct ldma_accelerator *ret;
	uint8_t data[2 * DATA_BYTES];
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	assert(fd >= 0 && write(fd, data, sizeof(data)) == sizeof(data));
	assert(!ldma_accelerator_create(&config, &changes, &verifier, &ret));
	assert(slots && !ldma_sessions_add(&ret->sessions, slots));
	ldma_slots_bind(slots, 5);
	assert(!ldma_opens_grant(&ret->opens, other, access, (const uint8_t *)"handle", 6, fd, 77,
				 1000));
	return ret;
}

int main(int argc, char **argv)
{
	int ends[2];
	pid_t client;
	struct ldma_service_config config = {.completions = 1024, .spin_ns = 50000};
	struct ldma_service *service;
	struct ldma_endpoint_stats stats;
	struct served served;
	struct ldma_accelerator *accelerator;

	assert(argc == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	client = fork();
	if (!client)
		be_client(ends[1]);
	config.port = open_port(SERVER);
	config.cq = ldma_port_create_cq(config.port, 1024);
	assert(!ldma_service_create(&config, &service));
	accelerator = open_store(argv[1]);
	ldma_service_set_program(service, &accelerator->program);
	open_served(&served, service, config.port, config.cq, 5, 8);
	tell(ends[0], served.qp->number);
	connect_served(&served, CLIENT, hear(ends[0]));
	hear(ends[0]);
	tell(ends[0], 0);
	hear(ends[0]);
	__atomic_store_n(&is_counting, true, __ATOMIC_RELAXED); /* all that is made once is made */
	tell(ends[0], 0);
	hear(ends[0]);
	__atomic_store_n(&is_counting, false, __ATOMIC_RELAXED);
	ldma_endpoint_get_stats(served.endpoint, &stats);
	assert(stats.fast_calls == 2 * READS && accelerator->counters.at_once == 2 * READS);
	for (uint32_t i = 0; i < PLACES; i++)
		if (functions[i])
			printf("%p %.2f\n", functions[i], (double)counts[i] / READS);
	assert(waitpid(client, NULL, 0) == client);
	fflush(stdout);
	_exit(0); /* with its threads */
}
