/* SPDX-License-Identifier: BSD-2-Clause */
/* What libfabric does over sockets: RDMA writes and ping-pong of the provider `tcp;ofi_rxm`, both sides spinning. Debian
 * packages the library without its bandwidth tests.
 *
 *   peer_libfabric serve ADDRESS PORT
 *   peer_libfabric write ADDRESS PORT BYTES COUNT      prints bytes/s and messages/s
 *   peer_libfabric pingpong ADDRESS PORT COUNT         64 bytes; prints ns one way
 *
 * The server says what may be written to, then echoes every message until one says END. One connection keeps its order,
 * so the echo of a message means that all writes before it have been placed. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REGION_BYTES (1 << 20)
#define MESSAGE_BYTES 4096
#define ECHO_BYTES 64
/* Outstanding writes; more gained nothing. */
#define DEPTH 16

enum word { ECHO, END };

/* The first one of each side: the client's carries its address, the server's what may be written to. */
struct message {
	uint64_t word;
	uint64_t base, key;
	uint8_t name[32];
};

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_ep *ep;
	struct fid_mr *region_mr, *message_mr;
	fi_addr_t peer;
	uint8_t *region;
	/* Halves: what comes in, what goes out. */
	uint8_t (*message)[MESSAGE_BYTES];
	uint64_t written;
};

static void must(const char *what, long result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
		exit(1);
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct fid_cq *open_cq(struct side *side)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
	struct fid_cq *cq;

	attr.size = 4 * DEPTH;
	must("fi_cq_open", fi_cq_open(side->domain, &attr, &cq, NULL));
	return cq;
}

static struct fid_mr *register_memory(struct side *side, void *memory, size_t bytes, uint64_t key)
{
	uint64_t access = FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
	struct fid_mr *mr;

	must("fi_mr_reg", fi_mr_reg(side->domain, memory, bytes, access, 0, key, 0, &mr, NULL));
	return mr;
}

static struct fi_info *find(const char *address, const char *port, bool is_server)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->msg_order = FI_ORDER_SAW;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
	must("fi_getinfo",
	     fi_getinfo(FI_VERSION(1, 17), address, port, is_server ? FI_SOURCE : 0, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static void post_receive(struct side *side)
{
	static struct fi_context context;

	must("fi_recv", fi_recv(side->ep, side->message[0], MESSAGE_BYTES,
				fi_mr_desc(side->message_mr), FI_ADDR_UNSPEC, &context));
}

static void open_side(struct side *side, const char *address, const char *port, bool is_server)
{
	struct fi_av_attr av = {.type = FI_AV_TABLE};

	side->info = find(address, port, is_server);
	must("fi_fabric", fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
	must("fi_domain", fi_domain(side->fabric, side->info, &side->domain, NULL));
	must("fi_av_open", fi_av_open(side->domain, &av, &side->av, NULL));
	side->tx = open_cq(side);
	side->rx = open_cq(side);
	must("fi_endpoint", fi_endpoint(side->domain, side->info, &side->ep, NULL));
	must("fi_ep_bind av", fi_ep_bind(side->ep, &side->av->fid, 0));
	must("fi_ep_bind tx", fi_ep_bind(side->ep, &side->tx->fid, FI_TRANSMIT));
	must("fi_ep_bind rx", fi_ep_bind(side->ep, &side->rx->fid, FI_RECV));
	must("fi_enable", fi_enable(side->ep));
	side->region = aligned_alloc(4096, REGION_BYTES);
	side->message = aligned_alloc(4096, 2 * MESSAGE_BYTES);
	memset(side->region, is_server, REGION_BYTES);
	memset(side->message, 0, 2 * MESSAGE_BYTES);
	side->region_mr = register_memory(side, side->region, REGION_BYTES, 1);
	side->message_mr = register_memory(side, side->message, 2 * MESSAGE_BYTES, 2);
	post_receive(side);
}

static bool reap(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = {0};
	struct fi_cq_entry entry;
	ssize_t count = fi_cq_read(cq, &entry, 1);

	if (count == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) > 0)
		must("completion", -error.err);
	if (count != -FI_EAGAIN)
		must("fi_cq_read", count);
	return count == 1;
}

/* Both queues make progress: a side that only receives may still have to send. */
static void receive(struct side *side)
{
	while (!reap(side->rx))
		side->written += reap(side->tx);
}

/* Injected: the message may be changed at once, and nothing completes. */
static void transmit(struct side *side, size_t bytes)
{
	ssize_t result;

	while ((result = fi_inject(side->ep, side->message[1], bytes, side->peer)) == -FI_EAGAIN)
		side->written += reap(side->tx);
	must("fi_inject", result);
}

static void know_peer(struct side *side, const void *name)
{
	if (fi_av_insert(side->av, name, 1, &side->peer, 0, NULL) != 1)
		must("fi_av_insert", -FI_EINVAL);
}

static void serve(struct side *side)
{
	struct message *in = (void *)side->message[0], *out = (void *)side->message[1];
	bool is_virtual = side->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;

	receive(side);
	know_peer(side, in->name);
	post_receive(side);
	out->base = is_virtual ? (uintptr_t)side->region : 0;
	out->key = fi_mr_key(side->region_mr);
	transmit(side, sizeof(*out));
	for (uint64_t word = ECHO; word != END;) {
		receive(side);
		word = in->word;
		post_receive(side);
		transmit(side, ECHO_BYTES);
	}
}

static void echo(struct side *side, enum word word)
{
	((struct message *)side->message[1])->word = word;
	transmit(side, ECHO_BYTES);
	receive(side);
	post_receive(side);
}

static struct message greet(struct side *side)
{
	struct message *out = (void *)side->message[1], in;
	size_t name_bytes = sizeof(out->name);

	know_peer(side, side->info->dest_addr);
	must("fi_getname", fi_getname(&side->ep->fid, out->name, &name_bytes));
	transmit(side, sizeof(*out));
	receive(side);
	memcpy(&in, side->message[0], sizeof(in));
	post_receive(side);
	return in;
}

static uint64_t write_ns(struct side *side, struct message target, size_t bytes, uint64_t count)
{
	static struct fi_context contexts[DEPTH];
	void *memory_descriptor = fi_mr_desc(side->region_mr);
	uint64_t start_ns = now_ns(), posted = 0;

	side->written = 0;
	while (posted < count) {
		ssize_t result = -FI_EAGAIN;

		if (posted - side->written < DEPTH)
			result = fi_write(side->ep, side->region, bytes, memory_descriptor,
					  side->peer, target.base, target.key,
					  &contexts[posted % DEPTH]);
		if (result != -FI_EAGAIN)
			must("fi_write", result);
		posted += result == 0;
		if (result)
			side->written += reap(side->tx);
	}
	while (side->written < count)
		side->written += reap(side->tx);
	echo(side, ECHO);
	return now_ns() - start_ns;
}

static int by_value(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

/* Returns half of the median round trip. */
static double pingpong_ns(struct side *side, uint64_t count)
{
	uint64_t *took_ns = calloc(count, sizeof(*took_ns)), time_ns = now_ns();

	for (uint64_t i = 0; i < count; i++) {
		uint64_t start_ns = time_ns;

		echo(side, ECHO);
		time_ns = now_ns();
		took_ns[i] = time_ns - start_ns;
	}
	qsort(took_ns, count, sizeof(*took_ns), by_value);
	return (double)took_ns[count / 2] / 2;
}

int main(int argc, char **argv)
{
	const char *role = argc > 3 ? argv[1] : "";
	struct message target;
	struct side side = {0};

	alarm(60);
	if (!strcmp(role, "serve") && argc == 4) {
		open_side(&side, argv[2], argv[3], true);
		serve(&side);
	} else if (!strcmp(role, "write") && argc == 6) {
		size_t bytes = strtoul(argv[4], NULL, 10);
		uint64_t count = strtoul(argv[5], NULL, 10);
		double took_s;

		open_side(&side, argv[2], argv[3], false);
		target = greet(&side);
		write_ns(&side, target, bytes, count / 10 + 1);
		took_s = (double)write_ns(&side, target, bytes, count) / 1e9;
		echo(&side, END);
		printf("%.0f bytes/s %.0f messages/s\n", (double)(bytes * count) / took_s,
		       (double)count / took_s);
	} else if (!strcmp(role, "pingpong") && argc == 5) {
		uint64_t count = strtoul(argv[4], NULL, 10);

		open_side(&side, argv[2], argv[3], false);
		greet(&side);
		printf("%.0f ns one way\n", pingpong_ns(&side, count));
		echo(&side, END);
	} else {
		fprintf(stderr, "usage: peer_libfabric serve|write|pingpong ADDRESS PORT ...\n");
		return 2;
	}
	return 0;
}
