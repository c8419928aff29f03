/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions whose connection is cut under load, and that go on: as they were, by another connection, or in another session of a
 * server that has forgotten all. Each call is executed once, and no data is wrong. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/load/stream_server.h"

#define SLOTS 4
#define ROUNDS 24
#define STEPS 40
#define SEQUENCE_AT 72
#define SEQUENCE_STATUS_AT 40 /* in a reply */
#define DELAY 10008

static struct server server = {.target = 63};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t sequences[SLOTS], delays;

static struct ldma_load_figures figures;

/* Some calls are delayed, so that connections break with slots that wait. */
static uint32_t serve_once(const uint8_t *call, uint8_t *reply)
{
	uint32_t sequence = get32(call + SEQUENCE_AT), slot = get32(call + SEQUENCE_AT + 4), length;
	bool is_new;

	assert(slot < SLOTS);
	pthread_mutex_lock(&lock);
	is_new = sequence == sequences[slot] + 1;
	assert(is_new || sequence == sequences[slot]);
	if (is_new && ++delays % 16 == 0) {
		length = server_reply(&server, call, false, false, reply);
		put32(reply + 24, DELAY);
		put32(reply + 32, 1);
		put32(reply + SEQUENCE_STATUS_AT, DELAY);
		length = SEQUENCE_STATUS_AT + 4;
	} else {
		length = server_reply(&server, call, is_new, false, reply);
		sequences[slot] = sequence;
	}
	pthread_mutex_unlock(&lock);
	return length;
}

static void *run(void *arg)
{
	ldma_load_run(arg);
	return NULL;
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

static int32_t place(struct ldma_load *load)
{
	int32_t found = 0;

	assert(ldma_load_places(load, &found, 1) == 1);
	return found;
}

/* Cuts the connection and ends its server's thread: what came in until then was executed. */
static void cut(struct ldma_load *load, uint32_t link)
{
	shutdown(connections[link]->ends[1], SHUT_RDWR);
	pthread_join(connections[link]->thread, NULL);
	while (place(load) != LDMA_LOAD_LOST)
		nap();
	done(load);
	assert(figures.lost == 1 && !figures.running && !figures.open);
	assert(!ldma_load_close_link(load, link));
}

/* All that the server had is gone, also what was written: nothing of it was committed. */
static void forget_all(struct ldma_load_session_config *session, uint32_t link)
{
	memset(&server.file, 0, sizeof(server.file));
	for (uint32_t i = 0; i < SLOTS; i++)
		sequences[i] = 0;
	session->link = link;
	session->target.stateid[0]++;
}

static uint32_t restore(struct ldma_load *load, struct ldma_load_session_config *session,
			uint32_t old, uint32_t round)
{
	uint32_t link;

	assert(ldma_load_resume_session(load, 0, old) == -EINVAL); /* it works */
	cut(load, old);
	assert(ldma_load_resume_session(load, 0, old) == -ENOTCONN);
	assert(ldma_load_resume_session(load, 1, old) == -EINVAL);
	link = open_connection(load);
	assert(ldma_load_move_session(load, 0, link) == -ENOTCONN);
	if (round % 2) {
		assert(!ldma_load_resume_session(load, 0, link));
	} else {
		forget_all(session, link);
		session->target.handle_length = LDMA_HANDLE_MOST + 1;
		assert(ldma_load_renew_session(load, 0, session) == -EINVAL);
		session->target.handle_length = 8;
		assert(!ldma_load_renew_session(load, 0, session));
	}
	assert(place(load) == (int32_t)link);
	advance(load);
	assert(figures.running == 1 && !figures.lost);
	return link;
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
	struct ldma_load *load;
	uint32_t link;
	pthread_t thread;

	forget_all(&session, 0);
	assert(!ldma_load_create(&config, &load));
	link = open_connection(load);
	assert(!pthread_create(&thread, NULL, run, load));
	assert(ldma_load_add_session(load, &session) == 0);
	ldma_load_begin(load);
	for (uint32_t i = link; i < ROUNDS; i++) {
		advance(load);
		assert(ldma_load_heard_ns(load));
		link = restore(load, &session, link, i);
	}
	ldma_load_stop(load);
	do {
		nap();
		done(load);
	} while (figures.open);
	ldma_load_end(load);
	pthread_join(thread, NULL);
	assert(!figures.counters.wrong && figures.counters.delays);
	shutdown(connections[link]->ends[1], SHUT_RDWR);
	pthread_join(connections[link]->thread, NULL);
	for (uint32_t i = 0; i <= link; i++) {
		close(connections[i]->ends[0]);
		close(connections[i]->ends[1]);
		free(connections[i]);
	}
	ldma_load_destroy(load);
}

int main(void)
{
	test(LDMA_LOAD_MIX, 0);
	test(LDMA_LOAD_READ, 0);
	test(LDMA_LOAD_WRITE, 0);
	test(LDMA_LOAD_MIX, 100000);
	return 0;
}
