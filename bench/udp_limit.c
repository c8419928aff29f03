/* SPDX-License-Identifier: BSD-2-Clause */
/* What a reliable transport over UDP costs at least on this machine, both sides spinning:
 *
 *   udp_limit serve ADDRESS PORT
 *   udp_limit stream ADDRESS PORT SECONDS     prints bytes/s and messages/s (4 KiB each)
 *   udp_limit connected|unconnected ADDRESS PORT SECONDS     ping-pong of 64 bytes; prints ns one way
 *
 * A stream moves 1 MiB over and over: trains (UDP GSO) of packets of 12 bytes of header, 4096 of payload and a CRC-32, copied
 * from the source before the CRC is made; a bounded number of unacknowledged bytes; the receiver takes whole trains (UDP
 * GRO), checks every CRC, copies every payload to its place and acknowledges the train. A gap ends the run: a side that loses
 * packets has no rate.
 *
 * Independent of the core on purpose: it is the yardstick, so it must not get slower with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <isa-l/crc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_BYTES (1 << 20)
#define PAYLOAD_BYTES 4096
#define PACKET_BYTES (12 + PAYLOAD_BYTES + 4)
/* The most that one UDP datagram's 64 KiB hold; shorter trains are slower. */
#define TRAIN_PACKETS 15
#define TRAIN_BYTES (TRAIN_PACKETS * PACKET_BYTES)
/* More gains nothing; much less than 128 KiB starves the receiver. */
#define WINDOW_BYTES (512 << 10)
#define RECEIVE_BUFFER_BYTES (4 << 20)
/* A buffer that starts on a page is copied into the kernel several percent slower. */
#define OFF_PAGE_BYTES 64
#define PING_BYTES 64
#define MAX_PINGS 2000000
#define STALL_NS 1000000000

enum word { STREAM, CONNECTED, UNCONNECTED, END };

struct header {
	uint64_t offset;
	uint32_t word;
} __attribute__((packed));

struct side {
	int fd;
	bool is_connected;
	struct sockaddr_storage peer;
	socklen_t peer_bytes;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint8_t *memory(size_t bytes)
{
	uint8_t *p = aligned_alloc(4096, (bytes + OFF_PAGE_BYTES + 4095) & ~(size_t)4095);

	memset(p, 0x5a, bytes + OFF_PAGE_BYTES);
	return p + OFF_PAGE_BYTES;
}

static struct side open_side(const char *address, const char *port, bool is_server)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST}, *found;
	struct side side = {0};
	int bytes = RECEIVE_BUFFER_BYTES, on = 1;

	if (getaddrinfo(address, port, &hints, &found)) {
		fprintf(stderr, "%s: not an address\n", address);
		exit(1);
	}
	side.fd = socket(found->ai_family, SOCK_DGRAM, 0);
	if (side.fd < 0 || setsockopt(side.fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) ||
	    setsockopt(side.fd, SOL_UDP, UDP_GRO, &on, sizeof(on)))
		fail("socket");
	if (is_server && bind(side.fd, found->ai_addr, found->ai_addrlen))
		fail("bind");
	memcpy(&side.peer, found->ai_addr, found->ai_addrlen);
	side.peer_bytes = found->ai_addrlen;
	freeaddrinfo(found);
	return side;
}

static void connect_side(struct side *side)
{
	if (connect(side->fd, (struct sockaddr *)&side->peer, side->peer_bytes))
		fail("connect");
	side->is_connected = true;
}

static void transmit(struct side *side, const void *data, size_t bytes)
{
	ssize_t sent = side->is_connected
			       ? send(side->fd, data, bytes, 0)
			       : sendto(side->fd, data, bytes, 0, (struct sockaddr *)&side->peer,
					side->peer_bytes);
	if (sent < 0)
		fail("send");
}

/* The bytes of one datagram or train; 0 if there is none. */
static size_t receive(struct side *side, void *data, size_t bytes)
{
	ssize_t got = recv(side->fd, data, bytes, MSG_DONTWAIT);

	if (got < 0 && errno != EAGAIN)
		fail("recv");
	return got < 0 ? 0 : (size_t)got;
}

static void receive_within(struct side *side, void *data, size_t bytes, uint64_t start_ns)
{
	for (uint32_t i = 0; !receive(side, data, bytes); i++) {
		if (i % 1024 == 1023 && now_ns() - start_ns > STALL_NS) {
			fprintf(stderr, "nothing came for a second: packets were lost\n");
			exit(1);
		}
	}
}

static void build_train(uint8_t *train, const uint8_t *source, uint64_t offset)
{
	for (int i = 0; i < TRAIN_PACKETS; i++, train += PACKET_BYTES, offset += PAYLOAD_BYTES) {
		struct header header = {.offset = offset, .word = STREAM};
		uint32_t crc;

		memcpy(train, &header, sizeof(header));
		memcpy(train + sizeof(header), source + offset % MEMORY_BYTES, PAYLOAD_BYTES);
		crc = crc32_gzip_refl(0, train, PACKET_BYTES - 4);
		memcpy(train + PACKET_BYTES - 4, &crc, sizeof(crc));
	}
}

/* Returns the bytes per second that were acknowledged, after a tenth of the time to get going. */
static double stream(struct side *side, double seconds)
{
	uint8_t *source = memory(MEMORY_BYTES), *train = memory(TRAIN_BYTES);
	uint64_t sent = 0, acknowledged = 0, before = 0, start_ns = 0, time_ns = now_ns();
	uint64_t begin_ns = time_ns + (uint64_t)(seconds * 1e8);
	uint64_t end_ns = begin_ns + (uint64_t)(seconds * 1e9);
	int packet_bytes = PACKET_BYTES;

	if (setsockopt(side->fd, SOL_UDP, UDP_SEGMENT, &packet_bytes, sizeof(packet_bytes)))
		fail("UDP_SEGMENT");
	while (time_ns < end_ns) {
		while (sent - acknowledged + TRAIN_PACKETS * PAYLOAD_BYTES <= WINDOW_BYTES) {
			build_train(train, source, sent);
			transmit(side, train, TRAIN_BYTES);
			sent += TRAIN_PACKETS * PAYLOAD_BYTES;
		}
		receive_within(side, &acknowledged, sizeof(acknowledged), time_ns);
		time_ns = now_ns();
		if (!start_ns && time_ns >= begin_ns) {
			start_ns = time_ns;
			before = acknowledged;
		}
	}
	return (double)(acknowledged - before) * 1e9 / (double)(time_ns - start_ns);
}

static uint64_t take_train(const uint8_t *train, size_t bytes, uint8_t *target, uint64_t taken)
{
	for (; bytes >= PACKET_BYTES; bytes -= PACKET_BYTES, train += PACKET_BYTES) {
		struct header header;
		uint32_t crc;

		memcpy(&header, train, sizeof(header));
		memcpy(&crc, train + PACKET_BYTES - 4, sizeof(crc));
		if (header.offset != taken || crc != crc32_gzip_refl(0, train, PACKET_BYTES - 4)) {
			fprintf(stderr, "lost or broken at %llu\n", (unsigned long long)taken);
			exit(1);
		}
		memcpy(target + taken % MEMORY_BYTES, train + sizeof(header), PAYLOAD_BYTES);
		taken += PAYLOAD_BYTES;
	}
	return taken;
}

static void take_stream(struct side *side)
{
	uint8_t *target = memory(MEMORY_BYTES), *train = memory(TRAIN_BYTES);
	uint64_t taken = 0;

	for (;;) {
		size_t bytes = receive(side, train, TRAIN_BYTES);

		if (bytes == 1)
			return;
		if (!bytes)
			continue;
		taken = take_train(train, bytes, target, taken);
		transmit(side, &taken, sizeof(taken));
	}
}

static int by_value(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

/* Returns half of the median round trip. */
static double pingpong_ns(struct side *side, double seconds)
{
	uint32_t *took_ns = calloc(MAX_PINGS, sizeof(*took_ns));
	uint64_t time_ns = now_ns(), end_ns = time_ns + (uint64_t)(seconds * 1e9);
	uint8_t ping[PING_BYTES] = {0};
	size_t count = 0;

	while (time_ns < end_ns && count < MAX_PINGS) {
		uint64_t start_ns = time_ns;

		transmit(side, ping, sizeof(ping));
		receive_within(side, ping, sizeof(ping), start_ns);
		time_ns = now_ns();
		took_ns[count++] = (uint32_t)(time_ns - start_ns);
	}
	qsort(took_ns, count, sizeof(*took_ns), by_value);
	return took_ns[count / 2] / 2.0;
}

static void take_pings(struct side *side)
{
	uint8_t ping[PING_BYTES];

	for (;;) {
		size_t bytes = receive(side, ping, sizeof(ping));

		if (bytes == 1)
			return;
		if (bytes)
			transmit(side, ping, bytes);
	}
}

/* The first datagram says what is wanted and from whom. */
static void serve(struct side *side)
{
	struct header hello;

	side->peer_bytes = sizeof(side->peer);
	if (recvfrom(side->fd, &hello, sizeof(hello), 0, (struct sockaddr *)&side->peer,
		     &side->peer_bytes) != sizeof(hello))
		fail("hello");
	if (hello.word != UNCONNECTED)
		connect_side(side);
	transmit(side, &hello, sizeof(hello));
	if (hello.word == STREAM)
		take_stream(side);
	else
		take_pings(side);
}

static void greet(struct side *side, enum word word)
{
	struct header hello = {.word = word};

	if (word != UNCONNECTED)
		connect_side(side);
	transmit(side, &hello, sizeof(hello));
	receive_within(side, &hello, sizeof(hello), now_ns());
}

int main(int argc, char **argv)
{
	const char *role = argc > 3 ? argv[1] : "";
	double seconds = argc > 4 ? atof(argv[4]) : 0;
	struct side side;
	enum word word;

	alarm(60);
	if (!strcmp(role, "serve")) {
		side = open_side(argv[2], argv[3], true);
		serve(&side);
		return 0;
	}
	word = !strcmp(role, "stream")        ? STREAM
	       : !strcmp(role, "connected")   ? CONNECTED
	       : !strcmp(role, "unconnected") ? UNCONNECTED
					      : END;
	if (word == END || seconds <= 0) {
		fprintf(stderr, "usage: udp_limit serve|stream|connected|unconnected "
				"ADDRESS PORT [SECONDS]\n");
		return 2;
	}
	side = open_side(argv[2], argv[3], false);
	greet(&side, word);
	if (word == STREAM) {
		double rate = stream(&side, seconds);

		printf("%.0f bytes/s %.0f messages/s\n", rate, rate / PAYLOAD_BYTES);
	} else {
		printf("%.0f ns one way\n", pingpong_ns(&side, seconds));
	}
	/* The train in flight may still fill the queue; one byte of this gets through. */
	usleep(20000);
	transmit(&side, "", 1);
	return 0;
}
