/* SPDX-License-Identifier: BSD-2-Clause */
/* What only C sees of a slot table: trying changes nothing, cancelling neither, and memory is bounded. The rules of the
 * protocol are tested in tests/nfs/test_native_slots.py. */
#include "nfs/slots.h"
#include "tests/base/expect.h"

#include <string.h>

static const uint8_t session_id[LDMA_SESSION_ID_BYTES] = "a session's id";
static const struct ldma_slots_took nothing;

static enum ldma_nfs_status begin(struct ldma_slots *slots, uint32_t slot, uint32_t sequence,
				  uint8_t **replay, uint32_t *length)
{
	struct ldma_sequence asked = {.slot = slot, .sequence = sequence, .cache_this = true};

	return ldma_slots_begin(slots, &asked, 1, replay, length);
}

static void test_trying_leaves_the_rest_alone(void)
{
	struct ldma_slots *slots = ldma_slots_create(session_id, 1, 4, 1024);
	struct ldma_sequence asked = {.sequence = 1, .fingerprint = 5};
	struct ldma_slots_counters before;
	uint32_t length;
	uint8_t *replay;

	EXPECT(ldma_slots_try(slots, &asked, 1));
	EXPECT(!ldma_slots_try(slots, &asked, 1)); /* it is executing */
	ldma_slots_end(slots, 0, &nothing, "reply", 5);
	before = slots->counters;
	EXPECT(!ldma_slots_try(slots, &asked, 2)); /* repeated */
	asked.sequence = 3;
	EXPECT(!ldma_slots_try(slots, &asked, 2));
	asked = (struct ldma_sequence){.slot = 4, .sequence = 1};
	EXPECT(!ldma_slots_try(slots, &asked, 2));
	asked = (struct ldma_sequence){.highest = 4, .sequence = 2};
	EXPECT(!ldma_slots_try(slots, &asked, 2));
	EXPECT(!memcmp(&before, &slots->counters, sizeof(before)) && slots->used_ns == 1);
	EXPECT(!begin(slots, 0, 1, &replay, &length) && length == 5 && !memcmp(replay, "reply", 5));
	free(replay);
	ldma_slots_close(slots);
	asked = (struct ldma_sequence){.sequence = 2};
	EXPECT(!ldma_slots_try(slots, &asked, 2));
	ldma_slots_put(slots);
}

static void test_cancelling_brings_the_last_reply_back(void)
{
	struct ldma_slots *slots = ldma_slots_create(session_id, 1, 4, 1024);
	uint32_t length;
	uint8_t *replay;

	EXPECT(!begin(slots, 2, 1, &replay, &length) && !replay);
	ldma_slots_cancel(slots, 2); /* nothing was before */
	EXPECT(slots->counters.executed == 0);
	EXPECT(begin(slots, 2, 2, &replay, &length) == LDMA_NFS_SEQ_MISORDERED);
	EXPECT(!begin(slots, 2, 1, &replay, &length) && !replay);
	EXPECT(ldma_slots_end(slots, 2, &nothing, "one", 3));
	EXPECT(!begin(slots, 2, 2, &replay, &length) && !replay);
	ldma_slots_cancel(slots, 2);
	EXPECT(!begin(slots, 2, 1, &replay, &length) && length == 3 && !memcmp(replay, "one", 3));
	free(replay);
	EXPECT(!begin(slots, 2, 2, &replay, &length) && !replay);
	ldma_slots_put(slots); /* while it executes: nothing leaks */
}

static void test_memory_follows_use(void)
{
	struct ldma_slots *slots = ldma_slots_create(session_id, 1, LDMA_SLOTS_MAX, 4096);
	static const uint8_t reply[4097];
	uint32_t length, chunks = 0;
	uint8_t *replay;

	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 1, &replay, &length));
	for (uint32_t i = 0; i < LDMA_SLOTS_MAX / LDMA_SLOTS_CHUNK; i++)
		chunks += slots->chunks[i] != NULL;
	EXPECT(chunks == 1);
	EXPECT(!ldma_slots_end(slots, LDMA_SLOTS_MAX - 1, &nothing, reply,
			       4097)); /* longer than agreed */
	EXPECT(slots->counters.reply_bytes == 0);
	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 2, &replay, &length));
	EXPECT(ldma_slots_end(slots, LDMA_SLOTS_MAX - 1, &nothing, reply, 4096));
	EXPECT(slots->counters.reply_bytes == 4096);
	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 3, &replay, &length));
	EXPECT(ldma_slots_end(slots, LDMA_SLOTS_MAX - 1, &nothing, reply,
			      100)); /* room for long ones goes */
	EXPECT(slots->counters.reply_bytes < 1024);
	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 3, &replay, &length) && length == 100);
	free(replay);
	ldma_slots_put(slots);
}

static struct ldma_slots_account account;

static uint32_t most_since_then(const struct ldma_slots *slots)
{
	uint32_t most = ldma_slots_most(&account, &slots->account);

	account = slots->account;
	return most;
}

static void begin_some(struct ldma_slots *slots, uint32_t from, uint32_t to, uint32_t sequence)
{
	uint32_t length;
	uint8_t *replay;

	for (uint32_t i = from; i < to; i++)
		EXPECT(!begin(slots, i, sequence, &replay, &length));
}

static void end_some(struct ldma_slots *slots, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		ldma_slots_end(slots, i, &nothing, NULL, 0);
}

static void test_how_many_executed_at_a_time(void)
{
	struct ldma_slots *slots = ldma_slots_create(session_id, 1, LDMA_SLOTS_MAX, 4096);

	memset(&account, 0, sizeof(account));
	EXPECT(most_since_then(slots) == 0);
	for (uint32_t count = 1; count <= LDMA_SLOTS_MAX; count += count < 70 ? 1 : 37) {
		uint32_t seen;

		begin_some(slots, 0, count, 1);
		end_some(slots, 0, count);
		seen = most_since_then(slots);
		EXPECT(seen >= count && seen <= count + count / 8);
		EXPECT(seen == count || count > 64);
		EXPECT(most_since_then(slots) == 0); /* none has begun */
		begin_some(slots, 0, 1, 2);
		end_some(slots, 0, 1);
		EXPECT(most_since_then(slots) == 1); /* what was before is no more */
		ldma_slots_put(slots);
		slots = ldma_slots_create(session_id, 1, LDMA_SLOTS_MAX, 4096);
		memset(&account, 0, sizeof(account));
	}
	begin_some(slots, 0, LDMA_SLOTS_MAX, 1);
	EXPECT(most_since_then(slots) >= LDMA_SLOTS_MAX);
	ldma_slots_put(slots);
}

static void test_what_requests_took(void)
{
	struct ldma_slots *slots = ldma_slots_create(session_id, 1, 4, 1024);
	struct ldma_sequence asked = {.slot = 3, .sequence = 1};
	struct ldma_slots_took took = {.now_ns = 5000,
				       .read_bytes = 10,
				       .written_bytes = 20,
				       .waited_ns = 30,
				       .storage_ns = 40};

	EXPECT(ldma_slots_try(slots, &asked, 2000));
	ldma_slots_end(slots, 3, &took, NULL, 0);
	asked.slot = 0;
	EXPECT(ldma_slots_try(slots, &asked, 7000)); /* seen before it came, by another clock */
	ldma_slots_end(slots, 0, &took, NULL, 0);
	EXPECT(slots->account.operations == 2 && slots->account.read_bytes == 20);
	EXPECT(slots->account.written_bytes == 40 && slots->account.waited_ns == 60);
	EXPECT(slots->account.storage_ns == 80 && slots->account.latency.count == 2);
	EXPECT(slots->account.latency.sum_ns == 3000 && slots->account.latency.max_ns == 3000);
	ldma_slots_put(slots);
}

int main(void)
{
	test_how_many_executed_at_a_time();
	test_what_requests_took();
	test_trying_leaves_the_rest_alone();
	test_cancelling_brings_the_last_reply_back();
	test_memory_follows_use();
	return 0;
}
