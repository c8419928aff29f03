/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool whose minimum and maximum change while it is used. */
#include "tests/memory/pool_users.h"

static uint64_t now_ns(void)
{
	return 1;
}

static uint64_t take(struct ldma_pool *pool)
{
	struct ldma_pool_buffer buffer;

	assert(!ldma_pool_take(pool, LDMA_POOL_DATA, &buffer));
	return buffer.handle;
}

static int try_take(struct ldma_pool *pool)
{
	struct ldma_pool_buffer buffer;

	return ldma_pool_take(pool, LDMA_POOL_DATA, &buffer);
}

static int calls;

static void count_call(void *owner)
{
	(void)owner;
	calls++;
}

static void be_served(struct ldma_pool_waiter *waiter, void *context)
{
	(void)context;
	assert(!waiter->result);
}

static struct ldma_pool *two_full_shards(uint8_t *memory[2], uint64_t handles[8])
{
	struct ldma_pool *pool = make_pool((struct ldma_pool_config){
		.shard_buffers = 4, .minimum = 8, .now_ns = now_ns, .call_owner = count_call});
	uint32_t number;

	for (int i = 0; i < 2; i++)
		memory[i] = add_shard(pool, 4, &number);
	for (int i = 0; i < 8; i++)
		handles[i] = take(pool);
	return pool;
}

static void test_wrong_bounds_are_refused(void)
{
	struct ldma_pool *pool = make_pool(
		(struct ldma_pool_config){.shard_buffers = 4, .reserve = 2, .now_ns = now_ns});

	assert(ldma_pool_set_bounds(pool, 5, 4) == -EINVAL);
	assert(ldma_pool_set_bounds(pool, 0, 1) == -EINVAL); /* the reserve */
	assert(ldma_pool_set_bounds(pool, 0, LDMA_POOL_BUFFERS_MAX + 1) == -EINVAL);
	assert(!ldma_pool_set_bounds(pool, 4, 4));
	assert(ldma_pool_is_short(pool));
	ldma_pool_destroy(pool);
}

/* What comes back beyond the maximum goes to nobody, and its shard leaves. */
static void test_a_lower_maximum(void)
{
	uint8_t *memory[2];
	uint64_t handles[8];
	struct ldma_pool *pool = two_full_shards(memory, handles);
	struct ldma_pool_waiter waiter = {.complete = be_served};
	uint32_t number;

	assert(!ldma_pool_set_bounds(pool, 4, 4));
	assert(!ldma_pool_room(pool));
	assert(ldma_pool_wait(pool, LDMA_POOL_DATA, &waiter) == -EINPROGRESS);
	calls = 0;
	for (int i = 0; i < 4; i++)
		assert(!ldma_pool_return(pool, handles[i]));
	assert(waiter.result == -EINPROGRESS && try_take(pool) == -EAGAIN);
	assert(calls == 1 && ldma_pool_is_calling(pool)); /* though but one shard is idle */
	ldma_pool_answer(pool);
	assert(!ldma_pool_retire_shard(pool, 1, &number));
	assert(ldma_pool_retire_shard(pool, 0, &number) == -EAGAIN);
	assert(stats_of(pool).buffers == 4);
	assert(!ldma_pool_return(pool, handles[4]) && !waiter.result);
	ldma_pool_destroy(pool);
	free(memory[0]);
	free(memory[1]);
}

static void test_a_higher_maximum(void)
{
	uint8_t *memory[2];
	uint64_t handles[8];
	struct ldma_pool *pool = two_full_shards(memory, handles);
	struct ldma_pool_waiter waiter = {.complete = be_served};

	assert(!ldma_pool_set_bounds(pool, 4, 4));
	assert(ldma_pool_wait(pool, LDMA_POOL_DATA, &waiter) == -EINPROGRESS);
	assert(!ldma_pool_return(pool, handles[0]) && waiter.result == -EINPROGRESS);
	assert(!ldma_pool_set_bounds(pool, 4, 8)); /* what was held back is for the waiter */
	assert(!waiter.result && try_take(pool) == -EAGAIN);
	assert(!ldma_pool_set_bounds(pool, 12, 0) && ldma_pool_room(pool) == 4);
	assert(ldma_pool_is_short(pool));
	ldma_pool_destroy(pool);
	free(memory[0]);
	free(memory[1]);
}

int main(void)
{
	test_wrong_bounds_are_refused();
	test_a_lower_maximum();
	test_a_higher_maximum();
	return 0;
}
