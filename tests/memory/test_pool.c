/* SPDX-License-Identifier: BSD-2-Clause */
/* What a pool promises in C: to callers that take, return and wait without Python. */
#include "tests/memory/pool_users.h"

#include "memory/pool_log.h"

static uint64_t clock_ns = 1000;

static uint64_t now_ns(void)
{
	return clock_ns;
}

static const struct ldma_pool_config small = {.shard_buffers = 4, .now_ns = now_ns};

static uint64_t take(struct ldma_pool *pool, enum ldma_pool_class class)
{
	struct ldma_pool_buffer buffer;

	assert(!ldma_pool_take(pool, class, &buffer));
	return buffer.handle;
}

static int try_take(struct ldma_pool *pool, enum ldma_pool_class class)
{
	struct ldma_pool_buffer buffer;

	return ldma_pool_take(pool, class, &buffer);
}

static void test_the_map_finds_each_once(void)
{
	static const uint32_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, LDMA_FREE_MAP_MAX};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint64_t *words = calloc(ldma_free_map_words(sizes[s]), sizeof(*words));
		struct ldma_free_map map;

		ldma_free_map_init(&map, words, sizes[s]);
		assert(!map.top);
		ldma_free_map_fill(&map, sizes[s], true);
		for (uint32_t i = 0; i < sizes[s]; i++)
			assert(map.top && ldma_free_map_take(&map) == i);
		assert(!map.top);
		for (uint32_t i = sizes[s]; i-- > 0;) {
			ldma_free_map_set(&map, i);
			assert(ldma_free_map_take(&map) == i && !map.top);
		}
		ldma_free_map_fill(&map, sizes[s], true);
		ldma_free_map_fill(&map, sizes[s], false);
		assert(!map.top);
		ldma_free_map_set(&map, sizes[s] / 2);
		assert(ldma_free_map_take(&map) == sizes[s] / 2 && !map.top);
		free(words);
	}
}

static void test_the_histogram_holds_every_time(void)
{
	static const uint64_t times[] = {0,  1,  7,    8,       9,         15,
					 16, 17, 1000, 1 << 20, INT64_MAX, UINT64_MAX};
	struct ldma_histogram histogram = {0};

	for (uint32_t i = 1; i < LDMA_HISTOGRAM_BUCKETS; i++) {
		assert(ldma_histogram_bucket(ldma_histogram_least_ns(i)) == i);
		assert(ldma_histogram_bucket(ldma_histogram_least_ns(i) - 1) == i - 1);
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		uint64_t least = ldma_histogram_least_ns(ldma_histogram_bucket(times[i]));

		assert(least <= times[i] && times[i] - least <= times[i] / 8);
		ldma_histogram_add(&histogram, times[i]);
	}
	assert(histogram.count == sizeof(times) / sizeof(times[0]));
	assert(histogram.max_ns == UINT64_MAX);
}

static void test_a_wrong_configuration_is_refused(void)
{
	struct ldma_pool_config config = small;
	struct ldma_pool *pool;

	assert(ldma_pool_create(&config, &pool) == -EINVAL); /* no bytes */
	config.buffer_bytes = BYTES;
	config.shard_buffers = 0;
	assert(ldma_pool_create(&config, &pool) == -EINVAL);
	config.shard_buffers = LDMA_POOL_SHARD_BUFFERS_MAX + 1;
	assert(ldma_pool_create(&config, &pool) == -EINVAL);
	config.shard_buffers = 4;
	config.reserve = 9;
	config.maximum = 8;
	assert(ldma_pool_create(&config, &pool) == -EINVAL);
	config.maximum = UINT32_MAX;
	assert(ldma_pool_create(&config, &pool) == -EINVAL);
	config.maximum = config.reserve = 0;
	config.now_ns = NULL;
	assert(ldma_pool_create(&config, &pool) == -EINVAL);
}

static void test_a_shard_that_does_not_fit_is_refused(void)
{
	struct ldma_pool_config config = small;
	static _Alignas(64) uint8_t memory[8 * BYTES];
	struct ldma_pool_shard shard = {.memory = memory, .buffers = 4};
	struct ldma_pool *pool;
	uint32_t number;

	config.maximum = 6;
	pool = make_pool(config);
	assert(ldma_pool_room(pool) == 4);
	shard.memory = memory + 32;
	assert(ldma_pool_add_shard(pool, &shard, &number) == -EINVAL);
	shard.memory = memory;
	shard.va = 32;
	assert(ldma_pool_add_shard(pool, &shard, &number) == -EINVAL);
	shard.va = 0;
	shard.buffers = 5;
	assert(ldma_pool_add_shard(pool, &shard, &number) == -ENOSPC);
	shard.buffers = 4;
	assert(!ldma_pool_add_shard(pool, &shard, &number));
	assert(ldma_pool_room(pool) == 2);
	assert(ldma_pool_add_shard(pool, &shard, &number) == -ENOSPC);
	shard.memory += 4 * BYTES;
	shard.buffers = 2;
	assert(!ldma_pool_add_shard(pool, &shard, &number));
	assert(ldma_pool_room(pool) == 0);
	ldma_pool_close(pool);
	assert(ldma_pool_add_shard(pool, &shard, &number) == -ESHUTDOWN);
	ldma_pool_destroy(pool);
}

static void test_a_buffer_returns_once(void)
{
	struct ldma_pool *pool = make_pool(small);
	uint32_t number;
	uint8_t *memory = add_shard(pool, 4, &number);
	uint64_t first = take(pool, LDMA_POOL_DATA), second, again;

	second = take(pool, LDMA_POOL_CONTROL);
	assert(!ldma_pool_return(pool, first));
	assert(ldma_pool_return(pool, first) == -EINVAL);
	again = take(pool, LDMA_POOL_DATA); /* the same buffer under another handle */
	assert((uint32_t)again == (uint32_t)first && again != first);
	assert(ldma_pool_return(pool, first) == -EINVAL);
	assert(ldma_pool_return(pool, 0) == -EINVAL);
	assert(ldma_pool_return(pool, UINT64_MAX) == -EINVAL);
	assert(ldma_pool_return(pool, again ^ UINT64_C(2) << 32) == -EINVAL); /* as of control */
	assert(ldma_pool_return(pool, again + 1) == -EINVAL);
	assert(ldma_pool_return(pool, again + 4) == -EINVAL); /* of the next shard */
	assert(!ldma_pool_return(pool, again) && !ldma_pool_return(pool, second));
	assert(stats_of(pool).refused == 7 && stats_of(pool).free == 4);
	ldma_pool_destroy(pool);
	free(memory);
}

/* An old handle stays wrong although its shard went and another one has its number. */
static void test_a_handle_outlives_its_shard(void)
{
	struct ldma_pool *pool = make_pool(small);
	uint32_t number, other;
	uint8_t *memory = add_shard(pool, 4, &number), *next;
	uint64_t old = take(pool, LDMA_POOL_DATA), young;

	assert(!ldma_pool_return(pool, old));
	assert(!ldma_pool_retire_shard(pool, 0, &other) && other == number);
	assert(ldma_pool_return(pool, old) == -EINVAL);
	next = add_shard(pool, 4, &other);
	assert(other == number);
	young = take(pool, LDMA_POOL_DATA);
	assert((uint32_t)young == (uint32_t)old && ldma_pool_return(pool, old) == -EINVAL);
	assert(!ldma_pool_return(pool, young));
	ldma_pool_destroy(pool);
	free(memory);
	free(next);
}

static uint32_t shard_of(uint64_t handle)
{
	return (uint32_t)handle >> 3;
}

/* The fullest shard with room is taken from, so others empty out. */
static void test_fuller_shards_first(void)
{
	struct ldma_pool_config config = small;
	struct ldma_pool_shard_use uses[3];
	uint64_t handles[3][8];
	struct ldma_pool *pool;
	uint8_t *memory[3];
	uint32_t number;

	config.shard_buffers = 8;
	pool = make_pool(config);
	for (int i = 0; i < 3; i++)
		memory[i] = add_shard(pool, 8, &number);
	for (int i = 0; i < 24; i++)
		handles[i / 8][i % 8] = take(pool, LDMA_POOL_DATA);
	for (int i = 0; i < 3; i++) /* one of the first shard's is free, two, four */
		for (int j = 0; j < 1 << i; j++)
			assert(!ldma_pool_return(pool, handles[i][j]));
	memset(uses, 0, sizeof(uses));
	assert(ldma_pool_get_shards(pool, uses, 2) == 3 && !uses[2].buffers);
	assert(ldma_pool_get_shards(pool, uses, 3) == 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct ldma_pool_shard_use *use = &uses[shard_of(handles[i][7])];

		assert(use->buffers == 8 && use->taken == 8 - (1u << i));
	}
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 1 << i; j++)
			assert(shard_of(take(pool, LDMA_POOL_DATA)) == shard_of(handles[i][7]));
	ldma_pool_destroy(pool);
	for (int i = 0; i < 3; i++)
		free(memory[i]);
}

static void test_data_leaves_the_reserve(void)
{
	struct ldma_pool_config config = small;
	uint64_t control[2], data[3];
	struct ldma_pool *pool;
	uint32_t number;
	uint8_t *memory;

	config.reserve = 2;
	pool = make_pool(config);
	assert(ldma_pool_is_short(pool));
	memory = add_shard(pool, 4, &number);
	assert(!ldma_pool_is_short(pool));
	data[0] = take(pool, LDMA_POOL_DATA);
	data[1] = take(pool, LDMA_POOL_DATA);
	assert(try_take(pool, LDMA_POOL_DATA) == -EAGAIN);
	control[0] = take(pool, LDMA_POOL_CONTROL);
	assert(try_take(pool, LDMA_POOL_DATA) == -EAGAIN);
	assert(!ldma_pool_return(
		pool, data[0])); /* one of data's own: what control holds is of its reserve */
	data[0] = take(pool, LDMA_POOL_DATA);
	control[1] = take(pool, LDMA_POOL_CONTROL);
	assert(try_take(pool, LDMA_POOL_CONTROL) == -EAGAIN);
	assert(!ldma_pool_return(pool, control[0]));
	assert(try_take(pool, LDMA_POOL_DATA) == -EAGAIN);
	assert(!ldma_pool_return(pool, data[0]) && !ldma_pool_return(pool, data[1]));
	control[0] = take(pool, LDMA_POOL_CONTROL);
	take(pool, LDMA_POOL_CONTROL); /* more than its reserve, while data leaves some */
	data[2] = take(pool, LDMA_POOL_DATA);
	assert(try_take(pool, LDMA_POOL_CONTROL) == -EAGAIN);
	assert(ldma_pool_retire_shard(pool, 0, &number) == -EAGAIN);
	ldma_pool_destroy(pool);
	free(memory);
}

static int calls;

static void count_call(void *owner)
{
	assert(owner == &calls);
	calls++;
}

/* Two idle shards call for the owner, once; one stays unless it is asked for, and the reserve always does. */
static void test_idle_shards_go(void)
{
	struct ldma_pool_config config = small;
	uint64_t handles[12];
	struct ldma_pool *pool;
	uint8_t *memory[3];
	uint32_t number;

	config.reserve = 1;
	config.call_owner = count_call;
	config.owner = &calls;
	calls = 0;
	pool = make_pool(config);
	for (int i = 0; i < 3; i++)
		memory[i] = add_shard(pool, 4, &number);
	for (int i = 0; i < 11; i++)
		handles[i] = take(pool, LDMA_POOL_DATA);
	for (int i = 0; i < 4; i++)
		assert(!ldma_pool_return(pool, handles[i]));
	assert(!calls && stats_of(pool).idle_shards == 1);
	assert(ldma_pool_retire_shard(pool, 1, &number) == -EAGAIN);
	for (int i = 4; i < 11; i++)
		assert(!ldma_pool_return(pool, handles[i]));
	assert(calls == 1 && ldma_pool_is_calling(pool));
	ldma_pool_answer(pool);
	assert(!ldma_pool_is_calling(pool));
	assert(!ldma_pool_retire_shard(pool, 1, &number) &&
	       !ldma_pool_retire_shard(pool, 1, &number));
	assert(ldma_pool_retire_shard(pool, 1, &number) == -EAGAIN);
	assert(ldma_pool_retire_shard(pool, 0, &number) == -EAGAIN); /* the reserve */
	assert(stats_of(pool).buffers == 4 && stats_of(pool).shards_removed == 2);
	ldma_pool_destroy(pool);
	for (int i = 0; i < 3; i++)
		free(memory[i]);
}

struct user {
	struct ldma_pool_waiter waiter;
	int completed_as; /* 1, 2, ... in the order of completions */
	void *context;
};

static int completions;

static void note(struct ldma_pool_waiter *waiter, void *context)
{
	((struct user *)waiter)->completed_as = ++completions;
	((struct user *)waiter)->context = context;
}

static struct user user = {.waiter.complete = note};

static void test_waiters_are_served_in_order(void)
{
	struct ldma_pool_config config = small;
	struct user data[3] = {user, user, user}, control = user;
	struct ldma_histogram waits;
	struct ldma_pool *pool;
	uint64_t handles[4];
	uint8_t *memory;
	uint32_t number;

	config.maximum = 4;
	pool = make_pool(config);
	memory = add_shard(pool, 4, &number);
	completions = 0;
	assert(!ldma_pool_wait(pool, LDMA_POOL_DATA, &data[0].waiter)); /* no need to */
	handles[0] = data[0].waiter.buffer.handle;
	for (int i = 1; i < 4; i++)
		handles[i] = take(pool, LDMA_POOL_DATA);
	for (int i = 0; i < 3; i++) {
		clock_ns += 100;
		assert(ldma_pool_wait(pool, LDMA_POOL_DATA, &data[i].waiter) == -EINPROGRESS);
	}
	clock_ns += 100;
	assert(ldma_pool_wait(pool, LDMA_POOL_CONTROL, &control.waiter) == -EINPROGRESS);
	clock_ns += 100;
	assert(stats_of(pool).waiting[LDMA_POOL_DATA] == 3);
	assert(stats_of(pool).oldest_ns[LDMA_POOL_DATA] == 400);
	assert(!ldma_pool_cancel(pool, &data[1].waiter)); /* from the middle */
	assert(data[1].waiter.result == -ECANCELED && !data[1].completed_as);
	for (int i = 0; i < 2; i++)
		assert(!ldma_pool_return(pool, handles[i]));
	assert(!ldma_pool_return_with(pool, handles[2], &config));
	assert(control.completed_as == 1 && data[0].completed_as == 2 && data[2].completed_as == 3);
	assert(!control.context && !data[0].context && data[2].context == &config);
	assert(!control.waiter.result && control.waiter.waited_ns == 100);
	assert(data[0].waiter.waited_ns == 400 && data[2].waiter.waited_ns == 200);
	assert(data[1].waiter.waited_ns == 300);
	assert(ldma_pool_cancel(pool, &data[2].waiter) == -EALREADY);
	assert(!ldma_pool_return(pool, data[2].waiter.buffer.handle));
	ldma_pool_get_waits(pool, LDMA_POOL_DATA, &waits);
	assert(waits.count == 3 && waits.sum_ns == 900 && waits.max_ns == 400);
	assert(waits.buckets[ldma_histogram_bucket(400)] == 1);
	assert(stats_of(pool).gave_up[LDMA_POOL_DATA] == 1 && stats_of(pool).free == 1);
	ldma_pool_destroy(pool);
	free(memory);
}

/* A waiter calls for the owner where there is room, and gets of what that brings. */
static void test_a_waiter_calls_for_a_shard(void)
{
	struct ldma_pool_config config = small;
	struct user users[5] = {user, user, user, user, user};
	struct ldma_pool *pool;
	uint8_t *memory;
	uint32_t number;

	config.maximum = 4;
	config.call_owner = count_call;
	config.owner = &calls;
	calls = completions = 0;
	pool = make_pool(config);
	for (int i = 0; i < 5; i++)
		assert(ldma_pool_wait(pool, LDMA_POOL_DATA, &users[i].waiter) == -EINPROGRESS);
	assert(calls == 1);
	ldma_pool_answer(pool);
	memory = add_shard(pool, 4, &number);
	for (int i = 0; i < 4; i++)
		assert(users[i].completed_as == i + 1 && !users[i].waiter.result);
	assert(!users[4].completed_as && calls == 1);
	ldma_pool_close(pool);
	assert(users[4].completed_as == 5 && users[4].waiter.result == -ESHUTDOWN);
	assert(ldma_pool_return(pool, users[0].waiter.buffer.handle) == -EINVAL);
	assert(ldma_pool_wait(pool, LDMA_POOL_DATA, &users[0].waiter) == -ESHUTDOWN);
	assert(try_take(pool, LDMA_POOL_CONTROL) == -ESHUTDOWN);
	assert(!ldma_pool_room(pool) && ldma_pool_retire_shard(pool, 0, &number) == -EAGAIN);
	assert(!stats_of(pool).taken[LDMA_POOL_DATA] && !stats_of(pool).shards);
	ldma_pool_close(pool);
	ldma_pool_destroy(pool);
	free(memory);
}

static struct ldma_pool *reentered;

/* A waiter may use the pool from its completion: here, it passes the buffer on. */
static void pass_on(struct ldma_pool_waiter *waiter, void *context)
{
	note(waiter, context);
	assert(!ldma_pool_return(reentered, waiter->buffer.handle));
}

static void test_a_completion_may_use_the_pool(void)
{
	struct user users[3] = {user, user, user};
	struct ldma_pool_config config = small;
	uint32_t number;
	uint8_t *memory;
	uint64_t handle;

	config.shard_buffers = config.maximum = 1;
	reentered = make_pool(config);
	memory = add_shard(reentered, 1, &number);
	completions = 0;
	handle = take(reentered, LDMA_POOL_DATA);
	for (int i = 0; i < 3; i++) {
		users[i].waiter.complete = pass_on;
		assert(ldma_pool_wait(reentered, LDMA_POOL_DATA, &users[i].waiter) == -EINPROGRESS);
	}
	assert(!ldma_pool_return(reentered, handle));
	assert(completions == 3 && stats_of(reentered).free == 1);
	ldma_pool_destroy(reentered);
	free(memory);
}

static void test_events_are_kept_for_a_reader(void)
{
	static const uint8_t expected[] = {
		LDMA_POOL_EVENT_SHARD_NEW,   LDMA_POOL_EVENT_BUFFER_TAKE,
		LDMA_POOL_EVENT_BUFFER_WAIT, LDMA_POOL_EVENT_BUFFER_RETURN,
		LDMA_POOL_EVENT_BUFFER_TAKE, LDMA_POOL_EVENT_SHARD_FREE,
		LDMA_POOL_EVENT_POOL_DESTROY};
	struct ldma_pool_log log = LDMA_POOL_LOG_INIT;
	struct ldma_pool_event events[16];
	struct ldma_pool_config config = small;
	struct user waiting = user;
	struct ldma_pool *pool;
	uint32_t number;
	uint64_t lost, handle;
	uint8_t *memory;

	config.log = &log;
	config.number = 77;
	pool = make_pool(config); /* nobody reads yet */
	assert(!ldma_pool_log_attach(&log, 7) && ldma_pool_log_attach(&log, 7) == -EBUSY);
	memory = add_shard(pool, 1, &number);
	handle = take(pool, LDMA_POOL_CONTROL);
	assert(ldma_pool_wait(pool, LDMA_POOL_DATA, &waiting.waiter) == -EINPROGRESS);
	clock_ns += 55;
	assert(!ldma_pool_cancel(pool, &waiting.waiter));
	assert(!ldma_pool_return(pool, handle));
	take(pool, LDMA_POOL_DATA);
	ldma_pool_destroy(pool);
	assert(ldma_pool_log_read(&log, events, 16, &lost) == sizeof(expected) && !lost);
	for (size_t i = 0; i < sizeof(expected); i++)
		assert(events[i].kind == expected[i] && events[i].pool == 77);
	assert(events[1].is_control && events[3].is_control && !events[4].is_control);
	assert(events[2].value == 55 && events[2].buffer == LDMA_POOL_NONE);
	assert(events[2].time_ns == clock_ns && events[1].time_ns == clock_ns - 55);
	assert(events[6].value == 1);
	for (uint32_t i = 0; i < 12; i++) /* a ring of eight */
		ldma_pool_log_add(&log, &(struct ldma_pool_event){.pool = i});
	assert(ldma_pool_log_read(&log, events, 3, &lost) == 3 && lost == 4);
	assert(ldma_pool_log_read(&log, events + 3, 16, &lost) == 5 && events[7].pool == 7);
	ldma_pool_log_detach(&log);
	ldma_pool_log_detach(&log);
	assert(!ldma_pool_log_has_reader(&log) && !ldma_pool_log_read(&log, events, 16, &lost));
	ldma_pool_log_add(&log, &events[0]);
	free(memory);
}

int main(void)
{
	test_the_map_finds_each_once();
	test_the_histogram_holds_every_time();
	test_a_wrong_configuration_is_refused();
	test_a_shard_that_does_not_fit_is_refused();
	test_a_buffer_returns_once();
	test_a_handle_outlives_its_shard();
	test_fuller_shards_first();
	test_data_leaves_the_reserve();
	test_idle_shards_go();
	test_waiters_are_served_in_order();
	test_a_waiter_calls_for_a_shard();
	test_a_completion_may_use_the_pool();
	test_events_are_kept_for_a_reader();
	ldma_pool_destroy(make_pool(small)); /* before first use */
	ldma_pool_destroy(NULL);
	puts("ok");
	return 0;
}
