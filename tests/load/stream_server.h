/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a load over sockets, each with a thread that answers its calls by serve_once, which the test defines. */
#ifndef LDMA_TEST_STREAM_SERVER_H
#define LDMA_TEST_STREAM_SERVER_H

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load/load.h"
#include "tests/load/load_server.h"

#define CONNECTIONS_MOST 64
#define LAST_FRAGMENT 0x80000000u

struct connection {
	pthread_t thread;
	int ends[2];
	uint8_t call[LDMA_IO_CALL_MOST + SERVER_SIZE], reply[4 + SERVER_REPLY_MOST];
};

static struct connection *connections[CONNECTIONS_MOST];

/* Answers a call; returns the length of the reply. */
static uint32_t serve_once(const uint8_t *call, uint8_t *reply);

static inline void nap(void)
{
	struct timespec pause = {.tv_nsec = 1000000};

	nanosleep(&pause, NULL);
}

static inline bool read_all(int fd, void *data, size_t length)
{
	for (size_t got = 0; got < length;) {
		ssize_t part = read(fd, (uint8_t *)data + got, length - got);

		if (part <= 0)
			return false;
		got += (size_t)part;
	}
	return true;
}

static void *serve(void *arg)
{
	struct connection *one = arg;
	uint8_t mark[4];

	while (read_all(one->ends[1], mark, 4) &&
	       (get32(mark) & ~LAST_FRAGMENT) <= sizeof(one->call) &&
	       read_all(one->ends[1], one->call, get32(mark) & ~LAST_FRAGMENT)) {
		uint32_t length = serve_once(one->call, one->reply + 4);

		put32(one->reply, LAST_FRAGMENT | length);
		if (send(one->ends[1], one->reply, length + 4, MSG_NOSIGNAL) < 0)
			break;
	}
	return NULL;
}

static inline uint32_t open_connection(struct ldma_load *load)
{
	struct connection *one = calloc(1, sizeof(*one));
	int number;

	assert(one && !socketpair(AF_UNIX, SOCK_STREAM, 0, one->ends));
	assert(!pthread_create(&one->thread, NULL, serve, one));
	number = ldma_load_add_tcp(load, one->ends[0]);
	assert(number >= 0 && number < CONNECTIONS_MOST);
	connections[number] = one;
	return (uint32_t)number;
}

#endif
