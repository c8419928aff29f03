/* SPDX-License-Identifier: BSD-2-Clause */
/* The endpoint with a program in C, whose work other threads share, and clients that are cut off at any moment. Under ASan
 * and UBSan, and under TSan: whatever happens, every buffer comes back once. */
#include <errno.h>
#include <pthread.h>

#include "tests/rpc/rpc_ends.h"

#define SERVER "127.0.44.1"
#define CLIENT "127.0.44.2"
#define CLIENTS 3
#define ROUNDS 40
#define DATA_SIZE 70000 /* 18 pieces, more than a call has at a time or one request takes */
#define PIECES 18

/* What a call asks for: the word behind its XID. */
enum what { ECHO, READ, WRITE, SLOW, LATER_READ, LATER_WRITE, KINDS };

/* A call that the program works on. */
struct work {
	struct ldma_call *call;
	pthread_mutex_t mutex;
	uint64_t asked, done;
	uint32_t under_way, sum; /* sum: atomic */
	bool is_driven, has_failed;
	struct work *next;
};

struct world {
	struct ldma_program program;
	struct ldma_port *port, *client_port;
	struct ldma_cq *cq;
	struct ldma_service *service;
	pthread_mutex_t mutex;
	pthread_cond_t has_work;
	struct work *later;
	bool is_over;
	uint32_t next_key;
};

static uint8_t pattern(uint64_t offset)
{
	return (uint8_t)(offset * 7 + offset / 251);
}

static void end_work(struct work *work, struct ldma_rpc_batch *batch)
{
	struct ldma_call *call = work->call;
	bool is_read = get32(call->message + 4) % 3 == READ;
	uint8_t reply[12];

	put32(reply, call->xid);
	put32(reply + 4, work->has_failed);
	put32(reply + 8, work->sum);
	ldma_call_reply(call, reply, sizeof(reply), is_read ? work->done : 0, batch);
	pthread_mutex_destroy(&work->mutex);
	free(work);
}

struct work_piece {
	struct ldma_piece shown; /* first */
	struct work *work;
};

/* The piece has its memory. The mutex is not held. */
static void use_piece(struct work *work, struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	bool is_read = get32(piece->call->message + 4) % 3 == READ;
	uint32_t length = piece->length, sum = 0;

	for (uint32_t i = 0; i < length; i++) {
		if (is_read)
			piece->memory[i] = pattern(piece->offset + i);
		else
			sum += piece->memory[i];
	}
	if (is_read)
		ldma_piece_push(piece, length, batch);
	else
		ldma_piece_drop(piece, batch);
	__atomic_add_fetch(&work->sum, sum, __ATOMIC_RELAXED);
}

/* A piece is over. The mutex is held. */
static void end_piece(struct work *work, struct work_piece *piece, bool has_failed)
{
	work->under_way--;
	work->has_failed |= has_failed;
	work->done += piece->shown.length;
	free(piece);
}

static void drive_work(struct work *work, struct ldma_rpc_batch *batch);

static void piece_is_there(struct ldma_piece *shown, struct ldma_rpc_batch *batch)
{
	struct work_piece *piece = (struct work_piece *)shown;
	struct work *work = piece->work;

	if (!shown->error)
		use_piece(work, shown, batch);
	pthread_mutex_lock(&work->mutex);
	end_piece(work, piece, shown->error);
	drive_work(work, batch);
}

static struct work_piece *next_piece(struct work *work)
{
	struct work_piece *piece = calloc(1, sizeof(*piece));
	uint64_t left = DATA_SIZE - work->asked;

	piece->work = work;
	piece->shown.offset = work->asked;
	piece->shown.length = left < DATA_BYTES ? (uint32_t)left : DATA_BYTES;
	piece->shown.done = piece_is_there;
	work->asked += piece->shown.length;
	work->under_way++;
	return piece;
}

/* Asks for as many pieces as it gets. The mutex is held, and is not afterwards. */
static void drive_work(struct work *work, struct ldma_rpc_batch *batch)
{
	struct ldma_call *call = work->call;
	bool is_read = get32(call->message + 4) % 3 == READ, is_over;

	if (work->is_driven) {
		pthread_mutex_unlock(&work->mutex);
		return;
	}
	work->is_driven = true;
	while (!work->has_failed && work->asked < DATA_SIZE) {
		struct work_piece *piece = next_piece(work);
		int error;

		pthread_mutex_unlock(&work->mutex);
		error = is_read ? ldma_call_room(call, &piece->shown, batch)
				: ldma_call_pull(call, &piece->shown, batch);
		if (!error)
			use_piece(work, &piece->shown, batch);
		pthread_mutex_lock(&work->mutex);
		if (error == -EINPROGRESS)
			continue;
		assert(!error || error == -EAGAIN || error == -ESHUTDOWN);
		if (error != -EAGAIN) {
			end_piece(work, piece, error);
			continue;
		}
		work->asked -= piece->shown.length;
		work->under_way--;
		free(piece);
		break;
	}
	work->is_driven = false;
	is_over = !work->under_way && (work->has_failed || work->asked == DATA_SIZE);
	/* It had as many as it may, and all of them ended meanwhile: no other thread will go on. */
	if (!is_over && !work->under_way) {
		drive_work(work, batch);
		return;
	}
	pthread_mutex_unlock(&work->mutex);
	if (is_over)
		end_work(work, batch);
}

static void begin_work(struct work *work, struct ldma_rpc_batch *batch)
{
	pthread_mutex_lock(&work->mutex);
	drive_work(work, batch);
}

static bool take(struct ldma_program *program, struct ldma_call *call, struct ldma_rpc_batch *batch)
{
	struct world *world = (struct world *)program;
	uint32_t what = get32(call->message + 4);
	struct work *work;

	if (what == ECHO) {
		ldma_call_reply(call, call->message, call->length, 0, batch);
		return true;
	}
	if (what == SLOW)
		return false;
	work = calloc(1, sizeof(*work));
	work->call = call;
	pthread_mutex_init(&work->mutex, NULL);
	if (what < SLOW) {
		begin_work(work, batch);
		return true;
	}
	pthread_mutex_lock(&world->mutex);
	work->next = world->later;
	world->later = work;
	pthread_cond_signal(&world->has_work);
	pthread_mutex_unlock(&world->mutex);
	return true;
}

static void *work_later(void *arg)
{
	struct world *world = arg;

	pthread_mutex_lock(&world->mutex);
	while (!world->is_over) {
		struct work *work = world->later;

		if (!work) {
			pthread_cond_wait(&world->has_work, &world->mutex);
			continue;
		}
		world->later = work->next;
		pthread_mutex_unlock(&world->mutex);
		begin_work(work, NULL);
		pthread_mutex_lock(&world->mutex);
	}
	pthread_mutex_unlock(&world->mutex);
	return NULL;
}

static void *work_slowly(void *arg)
{
	struct world *world = arg;

	while (!ldma_service_is_stopped(world->service)) {
		struct ldma_call *call = ldma_service_next_call(world->service, 10000000, false);
		uint8_t data[DATA_SIZE];
		const uint8_t *message;
		uint64_t length;

		if (!call)
			continue;
		message = ldma_call_message(call, &length);
		for (uint32_t i = 0; i < DATA_SIZE; i++)
			data[i] = pattern(i);
		ldma_call_answer(call, message, 12, data, DATA_SIZE, 12);
	}
	return NULL;
}

/* A call of its kind, with the chunks it needs: two segments of the data area. */
static uint32_t make_call(struct client *client, uint32_t xid, uint32_t what, uint8_t *ret)
{
	struct ldma_rpcrdma_segment segments[] = {
		{.offset = CLIENT_DATA, .handle = client->end.key, .length = 5000},
		{.offset = CLIENT_DATA + 5000,
		 .handle = client->end.key,
		 .length = DATA_SIZE - 5000},
	};
	struct ldma_rpcrdma header = {
		.xid = xid, .version = 1, .credits = 16, .segments = segments, .segment_count = 2};
	struct ldma_rpcrdma_chunk chunk = {.count = 2, .length = DATA_SIZE};
	uint32_t bytes;

	if (what == WRITE || what == LATER_WRITE) {
		header.reads[header.read_count++] = chunk;
		header.reads[0].position = 8;
	} else if (what != ECHO) {
		header.writes[header.write_count++] = chunk;
	}
	bytes = ldma_rpcrdma_bytes(&header);
	ldma_rpcrdma_encode(&header, ret);
	put32(ret + bytes, xid);
	put32(ret + bytes + 4, what);
	put32(ret + bytes + 8, 0);
	return bytes + 12;
}

static void send_call(struct client *client, uint32_t xid, uint32_t what)
{
	uint64_t place = CLIENT_SENDS + xid % 16 * INLINE_BYTES;

	post_send(&client->end, LDMA_WR_SEND, 1000, place,
		  make_call(client, xid, what, client->memory + place), 0, 0);
}

/* The next reply; false if the connection is over. */
static bool await_reply(struct client *client, const uint8_t **ret)
{
	uint64_t until_ns = test_now_ns() + PATIENCE_NS;
	struct ldma_wc wc;

	while (test_now_ns() < until_ns) {
		if (ldma_port_wait(client->end.port, client->end.cq, 0, PATIENCE_NS / 60) != 1 ||
		    !ldma_cq_poll(client->end.cq, &wc, 1))
			continue;
		if (wc.status)
			return false;
		if (wc.wr_id == 1000)
			continue;
		*ret = client->memory + CLIENT_RECEIVES + wc.wr_id * INLINE_BYTES;
		return true;
	}
	assert(!"a reply or an end came");
	return false;
}

static void again(struct client *client, const uint8_t *reply)
{
	uint64_t place = (uint64_t)(reply - client->memory) - CLIENT_RECEIVES;

	post_recv(&client->end, place / INLINE_BYTES, CLIENT_RECEIVES + place, INLINE_BYTES);
}

static void check_call(struct client *client, uint32_t xid, uint32_t what)
{
	uint8_t *data = client->memory + CLIENT_DATA;
	uint32_t sum = 0, read_sum;
	const uint8_t *reply, *message;

	for (uint32_t i = 0; i < DATA_SIZE; i++) {
		data[i] = what == WRITE || what == LATER_WRITE ? (uint8_t)(xid + i) : 0xee;
		sum += data[i];
	}
	send_call(client, xid, what);
	assert(await_reply(client, &reply));
	assert(get32(reply) == xid && get32(reply + 12) == LDMA_RPCRDMA_MSG);
	assert(get32(reply + 8) == CREDITS);
	message = reply + 28 + (get32(reply + 20) ? 8 + 32 : 0);
	assert(get32(message) == xid);
	if (what == ECHO)
		assert(get32(message + 4) == ECHO);
	if (what == READ || what == LATER_READ || what == SLOW)
		for (uint32_t i = 0; i < DATA_SIZE; i++)
			assert(data[i] == pattern(i));
	read_sum = get32(message + 8);
	if (what == WRITE || what == LATER_WRITE)
		assert(get32(message + 4) == 0 && read_sum == sum);
	again(client, reply);
}

static void connect_both(struct world *world, struct served *served, struct client *client,
			 uint32_t buffers)
{
	uint32_t key = __atomic_add_fetch(&world->next_key, 2, __ATOMIC_RELAXED);

	open_served(served, world->service, world->port, world->cq, key, buffers);
	open_client(client, world->client_port, CLIENT_DATA + DATA_SIZE, key + 1);
	connect_client(client, SERVER, served->qp->number);
	connect_served(served, CLIENT, client->end.qp->number);
}

static void free_over(struct world *world, struct served *served)
{
	struct ldma_endpoint *over = ldma_service_next_ended(world->service, PATIENCE_NS);

	assert(over == served->endpoint);
	free_served(served);
}

static void test_calls(struct world *world)
{
	struct served served;
	struct client client;
	struct ldma_endpoint_stats stats;

	connect_both(world, &served, &client, 1); /* each piece waits for the one before */
	for (uint32_t xid = 1; xid <= 120; xid++)
		check_call(&client, xid, xid % KINDS);
	ldma_endpoint_get_stats(served.endpoint, &stats);
	assert(stats.calls == 120 && stats.slow_calls == 20 && stats.fast_calls == 100);
	assert(stats.buffer_waits.count && !stats.in_progress);
	assert(stats.latency.count == 120);
	assert(stats.asked == 16);
	ldma_endpoint_close(served.endpoint);
	ldma_endpoint_close(served.endpoint);
	assert(!ldma_endpoint_is_open(served.endpoint));
	free_over(world, &served);
	free_client(&client);
}

/* Messages that the client's queue pair has taken for one call: requests for data, and the reply. */
static uint32_t messages_of(struct client *client, uint32_t xid, uint32_t what)
{
	const struct ldma_responder *responder = &client->end.qp->resp;
	uint32_t before, after;

	ldma_port_lock(client->end.port);
	before = responder->msn;
	ldma_port_unlock(client->end.port);
	check_call(client, xid, what);
	ldma_port_lock(client->end.port);
	after = responder->msn;
	ldma_port_unlock(client->end.port);
	return after - before;
}

/* What lies one behind the other in a segment goes at once, as far as there are buffers. */
static void test_joined(struct world *world)
{
	struct served served;
	struct client client;
	uint32_t pulled;

	connect_both(world, &served, &client, 1);
	/* Each piece by itself, and the second in two segments. */
	assert(messages_of(&client, 1, READ) == PIECES + 1 + 1);
	assert(messages_of(&client, 2, WRITE) == PIECES + 1 + 1);
	ldma_endpoint_close(served.endpoint);
	free_over(world, &served);
	free_client(&client);

	connect_both(world, &served, &client, PIECES);
	/* The first segment, as many as one request takes, the rest. */
	assert(messages_of(&client, 1, READ) == 3 + 1);
	pulled = messages_of(&client, 2, WRITE); /* the rest is asked for when others are there */
	assert(pulled == 3 + 1 || pulled == 4 + 1);
	ldma_endpoint_close(served.endpoint);
	free_over(world, &served);
	free_client(&client);
}

/* Calls of all kinds are under way when one side or the other goes. */
static void test_cuts(struct world *world)
{
	static const uint32_t buffers[] = {1, 2, 3, 2 * PIECES};

	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct served served[CLIENTS];
		struct client clients[CLIENTS];

		for (uint32_t i = 0; i < CLIENTS; i++)
			connect_both(world, &served[i], &clients[i], buffers[round % 4]);
		for (uint32_t i = 0; i < CREDITS * CLIENTS; i++)
			send_call(&clients[i % CLIENTS], i / CLIENTS, (i + round) % KINDS);
		for (uint32_t i = 0; i < round % 12; i++) {
			const uint8_t *reply;

			assert(await_reply(&clients[0], &reply));
		}
		for (uint32_t i = 0; i < CLIENTS; i++) {
			if ((i + round) % 2) {
				ldma_endpoint_close(served[i].endpoint);
				continue;
			}
			/* As a disconnection does at the server's side. */
			ldma_port_lock(world->port);
			ldma_qp_modify(served[i].qp, LDMA_QP_ERR, NULL);
			ldma_port_unlock(world->port);
		}
		for (uint32_t i = 0; i < CLIENTS; i++) {
			struct ldma_endpoint *over =
				ldma_service_next_ended(world->service, PATIENCE_NS);

			assert(over);
			free_served(ldma_endpoint_owner(over));
			free_client(&clients[i]);
		}
	}
}

/* A peer whose Receives are gone is cut off in time, and holds nobody up. */
static void test_stalled(struct world *world)
{
	struct served served, other;
	struct client client, fine;

	connect_both(world, &served, &client, 2);
	connect_both(world, &other, &fine, 2);
	for (uint32_t i = 0; i < CREDITS; i++)
		send_call(&client, i, ECHO);
	for (uint32_t i = 0; i < CREDITS; i++) {
		const uint8_t *reply;

		assert(await_reply(&client, &reply)); /* and no Receive instead of its own */
	}
	for (uint32_t i = 0; i < 2 * CREDITS; i++)
		send_call(&client, i, READ);
	for (uint32_t xid = 1; xid <= 30; xid++)
		check_call(&fine, xid, xid % KINDS);
	free_over(world, &served);
	free_client(&client);
	ldma_endpoint_close(other.endpoint);
	free_over(world, &other);
	free_client(&fine);
}

int main(void)
{
	struct world world = {.program.take = take,
			      .mutex = PTHREAD_MUTEX_INITIALIZER,
			      .has_work = PTHREAD_COND_INITIALIZER,
			      .next_key = 100};
	struct ldma_service_config config = {.completions = 4096, .spin_ns = 20000};
	pthread_t threads[3];

	world.port = config.port = open_port(SERVER);
	world.client_port = open_port(CLIENT);
	world.cq = config.cq = ldma_port_create_cq(world.port, config.completions);
	assert(!ldma_service_create(&config, &world.service));
	ldma_service_set_program(world.service, &world.program);
	for (int i = 0; i < 3; i++)
		assert(!pthread_create(&threads[i], NULL, i < 2 ? work_later : work_slowly,
				       &world));
	test_calls(&world);
	test_joined(&world);
	test_cuts(&world);
	test_stalled(&world);
	ldma_service_stop(world.service);
	pthread_mutex_lock(&world.mutex);
	world.is_over = true;
	pthread_cond_broadcast(&world.has_work);
	pthread_mutex_unlock(&world.mutex);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ldma_service_destroy(world.service);
	assert(!ldma_port_destroy_cq(world.port, world.cq));
	ldma_port_close(world.port);
	ldma_port_close(world.client_port);
	return 0;
}
