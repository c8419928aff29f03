/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads of a transport at once, each on its slot, with pieces that come from yet other threads; meanwhile another
 * stateid of the same file comes and goes, the target of the slots moves, and the delay does. Every block that is read
 * is one that was written as a whole; every call is answered once; under TSan there is no race. */
#include "tests/nfs/served_file.h"

#define ROUNDS 60
#define BLOCK 20000 /* several pieces */
#define PIECE 8192

static struct served served;
static bool is_over;

struct sender {
	pthread_t thread;
	uint32_t slot, left;
	uint8_t data[BLOCK], is[BLOCK];
	struct message m;
	struct memory_call call;
};

static bool send_call(struct sender *sender, enum ldma_nfs_op op, const uint8_t *stateid_other,
		      uint32_t round)
{
	struct asked asked = ask(&served, sender->slot, sender->slot * BLOCK, BLOCK);
	uint32_t position;

	asked.other = stateid_other;
	if (op == LDMA_NFS_OP_COMMIT)
		asked.count = 0;
	position = make_message(&sender->m, op, &asked);
	sender->call = make_call(&sender->m, op == LDMA_NFS_OP_READ ? sender->is : NULL, BLOCK);
	if (op == LDMA_NFS_OP_WRITE) {
		sender->call.call.read_position = position;
		sender->call.call.read_length = BLOCK;
		sender->call.read_chunk = sender->data;
	}
	sender->call.call.piece_bytes = PIECE;
	sender->call.is_later = round % 2;
	if (!offer(served.program, &sender->call)) {
		sender->left++;
		return false;
	}
	served.sequence[sender->slot]++;
	EXPECT(word(&sender->call, STATUS_AT) == 0);
	return true;
}

static const uint8_t passing[LDMA_OTHER_BYTES] = "comes & goes";

static void *send_all(void *argument)
{
	struct sender *sender = argument;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		memset(sender->data, (int)(round + sender->slot), BLOCK);
		EXPECT(send_call(sender, LDMA_NFS_OP_WRITE, other, round));
		memset(sender->is, 0, BLOCK);
		EXPECT(send_call(sender, LDMA_NFS_OP_READ, other, round));
		EXPECT(!memcmp(sender->is, sender->data, BLOCK));
		if (send_call(sender, LDMA_NFS_OP_READ, passing, round))
			EXPECT(!memcmp(sender->is, sender->data, BLOCK));
		if (round % 8 == 0)
			EXPECT(send_call(sender, LDMA_NFS_OP_COMMIT, other, round));
	}
	return NULL;
}

static void *disturb(void *argument)
{
	(void)argument;
	for (uint32_t round = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); round++) {
		EXPECT(!grant(&served, passing, true, false, served.fd));
		ldma_slots_set_target(served.slots, round % 2 ? SLOTS : 64);
		ldma_workers_set_delay(&served.accelerator->workers, round % 3 ? 0 : 100000);
		ldma_workers_set_width(&served.accelerator->workers, round % 4);
		usleep(100);
		EXPECT(ldma_opens_revoke(&served.accelerator->opens, passing));
	}
	return NULL;
}

int main(void)
{
	static struct sender senders[SLOTS];
	pthread_t disturbing;

	served = serve(SLOTS * BLOCK, 3);
	EXPECT(!pthread_create(&disturbing, NULL, disturb, NULL));
	for (uint32_t i = 0; i < SLOTS; i++) {
		senders[i].slot = i;
		EXPECT(!pthread_create(&senders[i].thread, NULL, send_all, &senders[i]));
	}
	for (uint32_t i = 0; i < SLOTS; i++)
		EXPECT(!pthread_join(senders[i].thread, NULL));
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	EXPECT(!pthread_join(disturbing, NULL));
	EXPECT(served.slots->counters.writes == SLOTS * ROUNDS && !served.slots->executing);
	stop_serving(&served);
	return 0;
}
