/* What only C sees of a slot table: trying changes nothing, cancelling neither, and memory is bounded. The rules of the
 * protocol are tested in tests/nfs/test_native_slots.py. */
#include "expect.h"
#include "slots.h"

#include <string.h>

static const uint8_t session_id[LDMA_SESSION_ID_BYTES] = "a session's id";

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
	ldma_slots_end(slots, 0, "reply", 5);
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
	EXPECT(ldma_slots_end(slots, 2, "one", 3));
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
	EXPECT(!ldma_slots_end(slots, LDMA_SLOTS_MAX - 1, reply, 4097)); /* longer than agreed */
	EXPECT(slots->counters.reply_bytes == 0);
	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 2, &replay, &length));
	EXPECT(ldma_slots_end(slots, LDMA_SLOTS_MAX - 1, reply, 4096));
	EXPECT(slots->counters.reply_bytes == 4096);
	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 3, &replay, &length));
	EXPECT(ldma_slots_end(slots, LDMA_SLOTS_MAX - 1, reply, 100)); /* room for long ones goes */
	EXPECT(slots->counters.reply_bytes < 1024);
	EXPECT(!begin(slots, LDMA_SLOTS_MAX - 1, 3, &replay, &length) && length == 100);
	free(replay);
	ldma_slots_put(slots);
}

int main(void)
{
	test_trying_leaves_the_rest_alone();
	test_cancelling_brings_the_last_reply_back();
	test_memory_follows_use();
	return 0;
}
