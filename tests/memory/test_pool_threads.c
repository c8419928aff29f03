/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool used by many threads at once, while shards come and go, somebody reads the events, and at last it is closed over
 * their heads: each buffer has one user at a time, none is lost, and, under TSan, there is no race. */
#include "tests/memory/pool_users.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

#define USERS 4
#define ROUNDS 2000
#define PHASE 100 /* rounds, and then all shards go */
#define SHARD_BUFFERS 4
#define SHARDS 3
#define SHARE (SHARDS * SHARD_BUFFERS / USERS)
#define HELD 6 /* by each user, at most */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct ldma_pool_log events = LDMA_POOL_LOG_INIT;
static struct ldma_pool *pool;
static sem_t owner_is_called;
static pthread_barrier_t together;
static bool is_quiet, is_over;

struct user {
	struct ldma_pool_waiter waiter;
	sem_t done;
	pthread_t thread;
	uint32_t number;
	uint32_t got, kept;
};

static void wake(struct ldma_pool_waiter *waiter, void *context)
{
	(void)context;
	sem_post(&((struct user *)waiter)->done);
}

static void call_owner(void *semaphore)
{
	sem_post(semaphore);
}

/* Waits; now and then it gives up at once. 0 or the error. */
static int wait_for_buffer(struct user *user, uint32_t round)
{
	enum ldma_pool_class class = user->number ? LDMA_POOL_DATA : LDMA_POOL_CONTROL;
	int result = ldma_pool_wait(pool, class, &user->waiter);

	if (result != -EINPROGRESS)
		return result;
	if (round % 3 == 0 && !ldma_pool_cancel(pool, &user->waiter))
		return -ECANCELED;
	while (sem_wait(&user->done))
		assert(errno == EINTR);
	return user->waiter.result;
}

/* One more, if there is one. */
static bool take_another(struct user *user, struct ldma_pool_buffer *ret)
{
	return !ldma_pool_take(pool, user->number ? LDMA_POOL_DATA : LDMA_POOL_CONTROL, ret);
}

/* Fills what it holds, lets others run, looks whether they wrote there, and returns it. */
static void use_and_return(struct user *user, const struct ldma_pool_buffer *held, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		memset(held[i].memory, (int)(user->number * HELD + i), BYTES);
	sched_yield();
	for (uint32_t i = 0; i < count; i++) {
		for (int j = 0; j < BYTES; j++)
			assert(held[i].memory[j] == user->number * HELD + i);
		assert(!ldma_pool_return(pool, held[i].handle));
		assert(ldma_pool_return(pool, held[i].handle) == -EINVAL);
	}
	user->got += count;
}

/* All together hold all there can be. */
static void fill_up(struct user *user)
{
	struct ldma_pool_buffer held[SHARE];

	for (uint32_t i = 0; i < SHARE; i++) {
		assert(!wait_for_buffer(user, 1));
		held[i] = user->waiter.buffer;
	}
	pthread_barrier_wait(&together);
	use_and_return(user, held, SHARE);
}

static void *use(void *arg)
{
	struct user *user = arg;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct ldma_pool_buffer held[HELD];
		uint32_t count = 0;

		if (round % PHASE == 0)
			fill_up(user);
		if (!wait_for_buffer(user, round))
			held[count++] = user->waiter.buffer;
		while (count < round % HELD && take_another(user, &held[count]))
			count++;
		use_and_return(user, held, count);
		if (round % PHASE == PHASE - 1) {
			/* Nobody has any: all shards but the reserve's go. */
			pthread_barrier_wait(&together);
			sem_post(&owner_is_called);
			while (stats_of(pool).shards > 1)
				sched_yield();
			pthread_barrier_wait(&together);
		}
	}
	/* Now it takes all that it can get, until the pool is closed. */
	while (wait_for_buffer(user, 1) != -ESHUTDOWN)
		user->kept++;
	return NULL;
}

/* The only thread that adds and retires; it keeps memory until no other can use it. */
static void *own(void *arg)
{
	uint8_t *memory[SHARDS] = {0};

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		uint32_t number;

		while (sem_wait(&owner_is_called))
			assert(errno == EINTR);
		ldma_pool_answer(pool);
		while (!ldma_pool_retire_shard(pool, 0, &number)) {
			free(memory[number]);
			memory[number] = NULL;
		}
		if (stats_of(pool).waiting[LDMA_POOL_DATA] && ldma_pool_room(pool)) {
			uint8_t *added = add_shard(pool, SHARD_BUFFERS, &number);

			assert(number < SHARDS && !memory[number]);
			memory[number] = added;
		}
	}
	ldma_pool_close(pool);
	for (int i = 0; i < SHARDS; i++)
		free(memory[i]);
	return arg;
}

/* Reads, and now and then goes and comes back. */
static void *listen(void *arg)
{
	while (!__atomic_load_n(&is_quiet, __ATOMIC_RELAXED)) {
		struct ldma_pool_event batch[64];
		uint64_t lost;

		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		while (ldma_pool_log_read(&events, batch, 64, &lost) == 64)
			;
		ldma_pool_log_detach(&events);
		assert(!ldma_pool_log_attach(&events, 256));
	}
	return arg;
}

int main(void)
{
	struct ldma_pool_config config = {
		.shard_buffers = SHARD_BUFFERS,
		.reserve = 1,
		.maximum = SHARDS * SHARD_BUFFERS,
		.now_ns = now_ns,
		.call_owner = call_owner,
		.owner = &owner_is_called,
		.log = &events,
	};
	static struct user users[USERS];
	struct ldma_pool_stats before, after;
	struct ldma_pool_event last[256];
	uint64_t got = 0, kept = 0, lost;
	pthread_t owner, listener;

	sem_init(&owner_is_called, 0, 0);
	pthread_barrier_init(&together, NULL, USERS);
	pool = make_pool(config);
	assert(!ldma_pool_log_attach(&events, 256));
	assert(!pthread_create(&owner, NULL, own, NULL));
	assert(!pthread_create(&listener, NULL, listen, NULL));
	for (uint32_t i = 0; i < USERS; i++) {
		users[i].number = i;
		users[i].waiter.complete = wake;
		sem_init(&users[i].done, 0, 0);
		assert(!pthread_create(&users[i].thread, NULL, use, &users[i]));
	}
	do {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		before = stats_of(pool);
	} while (before.waiting[LDMA_POOL_DATA] + before.waiting[LDMA_POOL_CONTROL] < USERS ||
		 before.buffers < SHARDS * SHARD_BUFFERS);
	__atomic_store_n(&is_quiet, true, __ATOMIC_RELAXED);
	pthread_join(listener, NULL);
	ldma_pool_log_detach(&events); /* from here on there is only the end */
	assert(!ldma_pool_log_attach(&events, 256));
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	sem_post(&owner_is_called);
	pthread_join(owner, NULL);
	for (uint32_t i = 0; i < USERS; i++) {
		pthread_join(users[i].thread, NULL);
		got += users[i].got;
		kept += users[i].kept;
		sem_destroy(&users[i].done);
	}
	after = stats_of(pool);
	assert(before.taken[LDMA_POOL_DATA] < SHARDS * SHARD_BUFFERS && before.free <= 1);
	assert(kept == before.taken[LDMA_POOL_DATA] + before.taken[LDMA_POOL_CONTROL]);
	assert(after.returns == got && after.refused == got);
	assert(after.takes[LDMA_POOL_DATA] + after.takes[LDMA_POOL_CONTROL] == got + kept);
	assert(after.shards_added == after.shards_removed &&
	       after.shards_added >= ROUNDS / PHASE * (SHARDS - 1));
	assert(!after.shards && !after.free);
	assert(ldma_pool_log_read(&events, last, 256, &lost) && !lost);
	assert(last[SHARDS + USERS].kind == LDMA_POOL_EVENT_POOL_DESTROY);
	ldma_pool_log_detach(&events);
	ldma_pool_destroy(pool);
	puts("ok");
	return 0;
}
