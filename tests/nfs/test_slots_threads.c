/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that send every request twice, on the same few slots, while another one moves the target up and down: each request
 * is executed once, a replay is its own reply, and, under TSan, there is no race. */
#include "nfs/slots.h"
#include "tests/base/expect.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define SLOTS 8
#define ROUNDS 3000
#define SENDERS 2 /* of the same requests */

static struct ldma_slots *slots;
static const struct ldma_slots_took nothing;
static uint32_t executed[SLOTS][ROUNDS + 1];
static bool is_over;

/* Sends requests of one slot until the last one was executed, by itself or by its twin. */
static void send_all(uint32_t slot)
{
	for (uint32_t sequence = 1; sequence <= ROUNDS;) {
		struct ldma_sequence asked = {slot, sequence, SLOTS - 1, sequence % 2, slot + 1};
		uint32_t reply[2] = {slot, sequence}, length;
		enum ldma_nfs_status status;
		uint8_t *replay;

		status = ldma_slots_begin(slots, &asked, sequence, &replay, &length);
		if (status == LDMA_NFS_DELAY) {
			sched_yield();
			continue;
		}
		if (status == LDMA_NFS_SEQ_MISORDERED) { /* the twin is further on */
			sequence++;
			continue;
		}
		EXPECT(status == LDMA_NFS_OK);
		if (replay) {
			EXPECT(length == sizeof(reply) && !memcmp(replay, reply, length));
			free(replay);
			sequence++;
			continue;
		}
		if (sequence % 7 == 0 && !__atomic_load_n(&executed[slot][0], __ATOMIC_RELAXED)) {
			__atomic_store_n(&executed[slot][0], 1, __ATOMIC_RELAXED);
			ldma_slots_cancel(slots, slot);
			continue;
		}
		__atomic_fetch_add(&executed[slot][sequence], 1, __ATOMIC_RELAXED);
		EXPECT(ldma_slots_end(slots, slot, &nothing, reply, sizeof(reply)));
		sequence++;
	}
}

static void *sender(void *argument)
{
	send_all((uint32_t)(uintptr_t)argument);
	return NULL;
}

static void *resizer(void *argument)
{
	(void)argument;
	for (uint32_t round = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); round++) {
		struct ldma_slots_limits limits;

		ldma_slots_set_target(slots, round % 2 ? LDMA_SLOTS_MAX : SLOTS);
		limits = ldma_slots_limits(slots);
		EXPECT(limits.highest >= limits.target_highest);
		sched_yield();
	}
	return NULL;
}

int main(void)
{
	static const uint8_t session_id[LDMA_SESSION_ID_BYTES] = "threads";
	pthread_t senders[SLOTS * SENDERS], resizing;

	slots = ldma_slots_create(session_id, 1, SLOTS, 1024);
	EXPECT(slots);
	EXPECT(!pthread_create(&resizing, NULL, resizer, NULL));
	for (uint32_t i = 0; i < SLOTS * SENDERS; i++)
		EXPECT(!pthread_create(&senders[i], NULL, sender, (void *)(uintptr_t)(i % SLOTS)));
	for (uint32_t i = 0; i < SLOTS * SENDERS; i++)
		EXPECT(!pthread_join(senders[i], NULL));
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	EXPECT(!pthread_join(resizing, NULL));
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		for (uint32_t sequence = 1; sequence <= ROUNDS; sequence++)
			EXPECT(executed[slot][sequence] == 1);
	EXPECT(slots->counters.executed == (uint64_t)SLOTS * ROUNDS && !slots->executing);
	ldma_slots_put(slots);
	return 0;
}
