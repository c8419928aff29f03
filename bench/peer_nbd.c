/* Reads from an NBD server as fast as it can: so many connections with so many requests under way on each, in one thread.
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
	struct reply head;
	size_t got; /* of the head and the data of the reply that is coming */
};

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

/* type: 0 to read, 2 to disconnect. */
static void add_request(struct connection *connection, uint16_t type)
{
	struct request request = {.magic = htobe32(REQUEST_MAGIC),
				  .type = htobe16(type),
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

/* Takes what came into the buffer at data; adds a request for each reply that is whole. */
static void take(struct connection *connection, const uint8_t *at, size_t length)
{
	while (length) {
		size_t want = connection->got < sizeof(struct reply)
				      ? sizeof(struct reply) - connection->got
				      : sizeof(struct reply) + bytes - connection->got;
		size_t n = want < length ? want : length;

		if (connection->got < sizeof(struct reply))
			memcpy((uint8_t *)&connection->head + connection->got, at, n);
		connection->got += n;
		at += n;
		length -= n;
		if (connection->got == sizeof(struct reply) &&
		    (connection->head.magic != htobe32(REPLY_MAGIC) || connection->head.error)) {
			fprintf(stderr, "a reply is wrong\n");
			exit(1);
		}
		if (connection->got == sizeof(struct reply) + bytes) {
			connection->got = 0;
			outstanding--;
			if (is_ending)
				continue;
			done++;
			outstanding++;
			add_request(connection, 0);
		}
	}
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
		connections[i].out = calloc(2 * depth + 2, sizeof(struct request));
		epoll_ctl(poller, EPOLL_CTL_ADD, connections[i].fd, &event);
		for (uint32_t j = 0; j < depth; j++)
			add_request(&connections[i], 0);
		outstanding += depth;
		flush(&connections[i]);
	}
	began_ns = now_ns(CLOCK_MONOTONIC);
	ends_ns = began_ns + (uint64_t)(atof(argv[6]) * 1e9);
	while (outstanding) {
		int ready = epoll_wait(poller, events, 64, 1000);

		for (int i = 0; i < ready; i++) {
			struct connection *connection = events[i].data.ptr;
			ssize_t n = read(connection->fd, data, 1 << 20);

			if (!n || (n < 0 && errno != EAGAIN))
				fail("read");
			if (n > 0)
				take(connection, data, (size_t)n);
			flush(connection);
		}
		if (!is_ending && now_ns(CLOCK_MONOTONIC) >= ends_ns) {
			is_ending = true;
			ends_ns = now_ns(CLOCK_MONOTONIC);
		}
	}
	for (int i = 0; i < count; i++) { /* or nbdkit may trip over those who just leave */
		add_request(&connections[i], 2);
		flush(&connections[i]);
		close(connections[i].fd);
	}
	printf("%.0f operations/s\n%.0f ns of CPU\n",
	       (double)done * 1e9 / (double)(ends_ns - began_ns),
	       (double)now_ns(CLOCK_PROCESS_CPUTIME_ID) / (double)done);
	return 0;
}
