/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads from an NBD server as fast as it can: so many connections with so many requests under way on each, in one thread.
 * Each request has memory of its own, where its data ends up, as a caller would have it: large data by reading it there,
 * small data by a copy, which is cheaper than a call.
 *
 *   peer_nbd ADDRESS PORT CONNECTIONS DEPTH BYTES SECONDS random|sequential
 *
 * Prints "N operations/s" and "N ns of CPU". */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OPTION_MAGIC UINT64_C(0x49484156454F5054)
#define REQUEST_MAGIC 0x25609513u
#define REPLY_MAGIC 0x67446698u

struct __attribute__((packed)) request {
	uint32_t magic;
	uint16_t flags, type;
	uint64_t handle, offset;
	uint32_t length;
};

struct __attribute__((packed)) reply {
	uint32_t magic, error;
	uint64_t handle;
};

struct connection {
	int fd;
	uint64_t next; /* of a sequential reader */
	struct request *out;
	size_t out_bytes, out_sent;
	uint8_t *memory; /* of all its requests */
	struct reply head;
	size_t got; /* of the head and the data of the reply that is coming */
};

#define LARGE 65536

static uint32_t bytes, depth;
static uint64_t export_bytes, done, seed = 88172645463325252u;
static bool is_random, is_ending;
static uint64_t outstanding;
static uint8_t *data;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_all(int fd, void *to, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t n = read(fd, (uint8_t *)to + got, length - got);

		if (n <= 0)
			fail("the server's greeting");
		got += (size_t)n;
	}
}

static int connect_to(const char *address, uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct __attribute__((packed)) {
		uint64_t magic;
		uint32_t option, length;
	} option = {htobe64(OPTION_MAGIC), htobe32(1), 0};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	uint8_t greeting[18], description[10];
	uint32_t flags = htobe32(3); /* fixed newstyle, no zeroes */

	inet_pton(AF_INET, address, &to.sin_addr);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		fail("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	read_all(fd, greeting, sizeof(greeting));
	if (write(fd, &flags, sizeof(flags)) < 0 || write(fd, &option, sizeof(option)) < 0)
		fail("write");
	read_all(fd, description, sizeof(description));
	memcpy(&export_bytes, description, sizeof(export_bytes));
	export_bytes = be64toh(export_bytes);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static uint64_t next_offset(struct connection *connection)
{
	uint64_t places = export_bytes / bytes;

	if (!is_random)
		return connection->next++ % places * bytes;
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % places * bytes;
}

/* type: 0 to read, 2 to disconnect. slot: whose memory. */
static void add_request(struct connection *connection, uint16_t type, uint64_t slot)
{
	struct request request = {.magic = htobe32(REQUEST_MAGIC),
				  .type = htobe16(type),
				  .handle = slot,
				  .offset = type ? 0 : htobe64(next_offset(connection)),
				  .length = type ? 0 : htobe32(bytes)};

	if (connection->out_sent == connection->out_bytes)
		connection->out_sent = connection->out_bytes = 0;
	memcpy((uint8_t *)connection->out + connection->out_bytes, &request, sizeof(request));
	connection->out_bytes += sizeof(request);
}

static void flush(struct connection *connection)
{
	while (connection->out_sent < connection->out_bytes) {
		ssize_t n = write(connection->fd, (uint8_t *)connection->out + connection->out_sent,
				  connection->out_bytes - connection->out_sent);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			fail("write");
		connection->out_sent += (size_t)n;
	}
}

/* Where the next byte of the reply's data belongs. */
static uint8_t *place(struct connection *connection)
{
	return connection->memory + connection->head.handle * bytes + connection->got -
	       sizeof(struct reply);
}

/* Counts so many bytes more of the reply that is coming; adds a request once it is whole. */
static void advance(struct connection *connection, size_t length)
{
	connection->got += length;
	if (connection->got == sizeof(struct reply) &&
	    (connection->head.magic != htobe32(REPLY_MAGIC) || connection->head.error ||
	     connection->head.handle >= depth)) {
		fprintf(stderr, "a reply is wrong\n");
		exit(1);
	}
	if (connection->got < sizeof(struct reply) + bytes)
		return;
	connection->got = 0;
	outstanding--;
	if (is_ending)
		return;
	done++;
	outstanding++;
	add_request(connection, 0, connection->head.handle);
}

/* Takes what came into the buffer at data. */
static void take(struct connection *connection, const uint8_t *at, size_t length)
{
	while (length) {
		bool is_head = connection->got < sizeof(struct reply);
		size_t want = sizeof(struct reply) + (is_head ? 0 : bytes) - connection->got;
		size_t n = want < length ? want : length;

		memcpy(is_head ? (uint8_t *)&connection->head + connection->got : place(connection),
		       at, n);
		advance(connection, n);
		at += n;
		length -= n;
	}
}

/* What is there; a head alone, or data where it belongs, if that is large. */
static void receive(struct connection *connection)
{
	bool is_head = connection->got < sizeof(struct reply);
	uint8_t *to = data;
	size_t want = 1 << 20;
	ssize_t n;

	if (bytes >= LARGE) {
		to = is_head ? (uint8_t *)&connection->head + connection->got : place(connection);
		want = sizeof(struct reply) + (is_head ? 0 : bytes) - connection->got;
	}
	n = read(connection->fd, to, want);
	if (!n || (n < 0 && errno != EAGAIN))
		fail("read");
	if (n <= 0)
		return;
	if (bytes >= LARGE)
		advance(connection, (size_t)n);
	else
		take(connection, data, (size_t)n);
}

int main(int argc, char **argv)
{
	int poller = epoll_create1(0), count = argc == 8 ? atoi(argv[3]) : 0;
	struct connection *connections = calloc((size_t)count, sizeof(*connections));
	struct epoll_event events[64];
	uint64_t began_ns, ends_ns;

	if (!count) {
		fprintf(stderr, "peer_nbd ADDRESS PORT CONNECTIONS DEPTH BYTES SECONDS "
				"random|sequential\n");
		return 2;
	}
	depth = (uint32_t)atoi(argv[4]);
	bytes = (uint32_t)atoi(argv[5]);
	is_random = !strcmp(argv[7], "random");
	data = malloc(1 << 20);
	for (int i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};

		connections[i].fd = connect_to(argv[1], (uint16_t)atoi(argv[2]));
		/* What is not sent yet, and what has been sent of the same buffer. */
		connections[i].memory = malloc((size_t)depth * bytes);
		connections[i].out = calloc(2 * depth + 2, sizeof(struct request));
		epoll_ctl(poller, EPOLL_CTL_ADD, connections[i].fd, &event);
		for (uint32_t j = 0; j < depth; j++)
			add_request(&connections[i], 0, j);
		outstanding += depth;
		flush(&connections[i]);
	}
	began_ns = now_ns(CLOCK_MONOTONIC);
	ends_ns = began_ns + (uint64_t)(atof(argv[6]) * 1e9);
	while (outstanding) {
		int ready = epoll_wait(poller, events, 64, 1000);

		for (int i = 0; i < ready; i++) {
			struct connection *connection = events[i].data.ptr;

			receive(connection);
			flush(connection);
		}
		if (!is_ending && now_ns(CLOCK_MONOTONIC) >= ends_ns) {
			is_ending = true;
			ends_ns = now_ns(CLOCK_MONOTONIC);
		}
	}
	for (int i = 0; i < count; i++) { /* or nbdkit may trip over those that just leave */
		add_request(&connections[i], 2, 0);
		flush(&connections[i]);
		close(connections[i].fd);
	}
	printf("%.0f operations/s\n%.0f ns of CPU\n",
	       (double)done * 1e9 / (double)(ends_ns - began_ns),
	       (double)now_ns(CLOCK_PROCESS_CPUTIME_ID) / (double)done);
	return 0;
}
