/* SPDX-License-Identifier: BSD-2-Clause */
/* A session that changes its connection under load, again and again: connections come, end in order, or are cut on either
 * side of a move. The server counts what it executes, so that a call that is lost or executed twice is seen. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/load/stream_server.h"

#define SLOTS 4
#define ROUNDS 32
#define STEPS 40 /* operations between what happens */
#define SESSION_AT 56
#define SEQUENCE_AT 72
#define SEQUENCE_STATUS_AT 40 /* in a reply */
#define SEQ_MISORDERED 10063

/* One server behind all connections, with the reply cache of one session. */
static struct server server = {.target = 63};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t sequences[SLOTS];
static uint64_t executed;

static struct ldma_load_figures figures;

/* RFC 8881, 2.10.6.1: the next sequence of a slot is executed, the last one is answered again, others are refused. */
static uint32_t serve_once(const uint8_t *call, uint8_t *reply)
{
	uint32_t sequence = get32(call + SEQUENCE_AT), slot = get32(call + SEQUENCE_AT + 4), length;

	assert(slot < SLOTS);
	pthread_mutex_lock(&lock);
	length = server_reply(&server, call, sequence == sequences[slot] + 1, false, reply);
	if (sequence == sequences[slot] + 1) {
		sequences[slot] = sequence;
		executed++;
	} else if (sequence != sequences[slot]) {
		put32(reply + 24, SEQ_MISORDERED);
		put32(reply + 32, 1);
		put32(reply + SEQUENCE_STATUS_AT, SEQ_MISORDERED);
		length = SEQUENCE_STATUS_AT + 4;
	}
	pthread_mutex_unlock(&lock);
	return length;
}

static void cut(uint32_t number)
{
	shutdown(connections[number]->ends[1], SHUT_RDWR);
}

static uint64_t done(struct ldma_load *load)
{
	ldma_load_figures(load, &figures);
	assert(!figures.counters.errors && !figures.failed);
	return figures.counters.reads + figures.counters.writes;
}

static void advance(struct ldma_load *load)
{
	uint64_t from = done(load);

	while (done(load) < from + STEPS)
		nap();
}

static void wait_for_error(struct ldma_load *load, uint32_t link)
{
	while (!ldma_load_link_error(load, link))
		nap();
}

static int32_t place(struct ldma_load *load)
{
	int32_t found = -2;

	assert(ldma_load_places(load, &found, 1) == 1);
	return found;
}

static void rest(struct ldma_load *load)
{
	uint64_t before;

	ldma_load_set_active(load, 0);
	do {
		nap();
		before = done(load);
	} while (figures.open);
	assert(!figures.running);
	nap();
	assert(done(load) == before);
	ldma_load_set_active(load, 1);
	advance(load);
	assert(figures.running == 1);
}

/* Moves the session away from where it is; returns where it is then. */
static uint32_t move(struct ldma_load *load, uint32_t old, uint32_t round)
{
	uint32_t new = open_connection(load);

	assert(ldma_load_close_link(load, old) == -EBUSY);
	assert(!ldma_load_pair(load, old, new));
	advance(load);
	if (round % 4 < 3) {
		assert(!ldma_load_move_session(load, 0, new));
		assert(!ldma_load_move_session(load, 0, new)); /* it is there already */
	}
	if (round % 4 == 0) {
		while (ldma_load_close_link(load, old))
			nap();
		assert(ldma_load_link_error(load, old) == -ESHUTDOWN);
	} else if (round % 4 != 2) {
		cut(old);
		wait_for_error(load, old);
	} else {
		cut(new);
		wait_for_error(load, new);
		assert(place(load) == (int32_t)old);
		assert(ldma_load_move_session(load, 0, new) == -ENOTCONN);
		new = old;
	}
	advance(load);
	assert(place(load) == (int32_t)new);
	return new;
}

static void *run(void *arg)
{
	ldma_load_run(arg);
	return NULL;
}

static void close_all(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		cut(i);
		pthread_join(connections[i]->thread, NULL);
		close(connections[i]->ends[0]);
		close(connections[i]->ends[1]);
		free(connections[i]);
	}
}

static void test(uint8_t rw, uint64_t interval_ns)
{
	struct ldma_load_config config = {
		.size = SERVER_SIZE,
		.depth = SLOTS,
		.rw = rw,
		.verifies = true,
		.interval_ns = interval_ns,
	};
	struct ldma_load_session_config session = {
		.slots = SLOTS,
		.file_bytes = sizeof(server.file),
		.target = server_target,
		.seed = 5,
	};
	static struct ldma_load_session_figures found;
	struct ldma_load *load;
	uint32_t link;
	pthread_t thread;

	memset(sequences, 0, sizeof(sequences));
	executed = 0;
	assert(!ldma_load_create(&config, &load));
	link = open_connection(load);
	assert(!pthread_create(&thread, NULL, run, load));
	ldma_load_begin(load);
	assert(ldma_load_add_session(load, &session) == 0);
	assert(ldma_load_move_session(load, 1, link) == -EINVAL);
	assert(ldma_load_move_session(load, 0, link + 1) == -EINVAL);
	assert(ldma_load_close_link(load, link + 1) == -EINVAL);
	assert(ldma_load_pair(load, link, link) == -EINVAL);
	assert(ldma_load_pair(load, link, link + 1) == -EINVAL);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		link = move(load, link, i);
		if (i % 7 == 0)
			rest(load);
	}
	ldma_load_stop(load);
	do {
		nap();
		done(load);
	} while (figures.open);
	ldma_load_end(load);
	pthread_join(thread, NULL);
	assert(!ldma_load_session_figures(load, 0, &found));
	assert(found.moves == ROUNDS / 4 * 3 && found.pause_ns && found.gap_ns);
	assert(!figures.counters.wrong && figures.counters.repeats);
	close_all(ROUNDS + 1);
	/* Each once: also those whose reply was lost with a connection. */
	assert(executed ==
	       figures.counters.fills + figures.counters.reads + figures.counters.writes);
	ldma_load_destroy(load);
}

/* Calls that wait move with their session, and those of others stay, whichever wait behind. */

static uint32_t seen[2][3]; /* calls, by connection and session */

static void *listen_only(void *arg)
{
	struct connection *one = arg;
	uint32_t number = one == connections[1];
	uint8_t mark[4];

	while (read_all(one->ends[1], mark, 4) && (get32(mark) & 0x7fffffff) <= sizeof(one->call) &&
	       read_all(one->ends[1], one->call, get32(mark) & 0x7fffffff))
		__atomic_add_fetch(&seen[number][one->call[SESSION_AT] - 'a'], 1, __ATOMIC_RELAXED);
	return NULL;
}

static uint32_t count(uint32_t connection, char session)
{
	return __atomic_load_n(&seen[connection][session - 'a'], __ATOMIC_RELAXED);
}

static void test_waiting(void)
{
	struct ldma_load_config config = {.size = SERVER_SIZE, .depth = SLOTS};
	struct ldma_load_session_config session = {
		.slots = SLOTS, .file_bytes = sizeof(server.file), .target = server_target};
	struct ldma_load *load;
	pthread_t thread;

	assert(!ldma_load_create(&config, &load));
	for (uint32_t i = 0; i < 2; i++) {
		connections[i] = calloc(1, sizeof(*connections[i]));
		assert(connections[i]);
		assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, connections[i]->ends));
		assert(ldma_load_add_tcp(load, connections[i]->ends[0]) == (int)i);
	}
	for (uint8_t i = 0; i < 3; i++) {
		session.target.session[0] = 'a' + i;
		assert(ldma_load_add_session(load, &session) == i);
		if (i == 1) /* the last that waits */
			assert(!ldma_load_move_session(load, 1, 1));
	}
	for (uint32_t i = 0; i < 2; i++)
		assert(!pthread_create(&connections[i]->thread, NULL, listen_only, connections[i]));
	assert(!pthread_create(&thread, NULL, run, load));
	while (count(0, 'a') + count(0, 'c') + count(1, 'b') < 3 * SLOTS) {
		assert(!count(0, 'b') && !count(1, 'a') && !count(1, 'c'));
		nap();
	}
	ldma_load_end(load);
	pthread_join(thread, NULL);
	close_all(2);
	ldma_load_destroy(load);
}

int main(void)
{
	test_waiting();
	test(LDMA_LOAD_MIX, 0);
	test(LDMA_LOAD_READ, 0);
	test(LDMA_LOAD_MIX, 100000);
	return 0;
}
