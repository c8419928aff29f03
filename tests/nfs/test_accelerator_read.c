/* SPDX-License-Identifier: BSD-2-Clause */
/* READs without Python. */
#include "tests/nfs/served_file.h"

#define SIZE 300001

static uint8_t chunk[1 << 20];

/* Whether chunk has the file's bytes, and nothing behind them was touched. */
static void expect_bytes(const uint8_t *bytes, uint64_t offset, uint64_t length)
{
	for (uint64_t i = 0; i < length; i++)
		EXPECT(bytes[i] == byte_at(offset + i));
}

static void read_file(struct served *served, uint64_t offset, uint32_t count, uint64_t room,
		      uint32_t expected, bool is_eof, bool is_later)
{
	struct asked asked = ask(served, 0, offset, count);
	struct memory_call call;
	struct message m;

	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, room);
	call.is_later = is_later;
	memset(chunk, 0xee, sizeof(chunk));
	EXPECT(offer(served->program, &call));
	served->sequence[0]++;
	EXPECT(word(&call, STATUS_AT) == 0 && word(&call, RESULTS_AT) == 3);
	EXPECT(word(&call, BODY_AT) == is_eof && word(&call, BODY_AT + 4) == expected);
	EXPECT(call.data_length == expected && call.reply_length == BODY_AT + 8);
	expect_bytes(chunk, offset, expected);
	EXPECT(expected == sizeof(chunk) || chunk[expected] == 0xee);
	EXPECT(!served->slots->executing);
}

static void test_lengths(bool is_later, uint32_t threads)
{
	struct served served = serve(SIZE, threads);

	read_file(&served, 0, 4096, 4096, 4096, false, is_later);
	read_file(&served, 4096, 8192, 8192, 8192, false, is_later);
	read_file(&served, 5, 7, 4096, 7, false, is_later);
	read_file(&served, 0, SIZE, sizeof(chunk), SIZE, true, is_later); /* in pieces */
	read_file(&served, 0, SIZE - 1, sizeof(chunk), SIZE - 1, false, is_later);
	read_file(&served, 1, SIZE, sizeof(chunk), SIZE - 1, true, is_later); /* to the end */
	read_file(&served, 0, 200000, 100000, 100000, false, is_later); /* what the chunk takes */
	read_file(&served, SIZE, 100, 4096, 0, true, is_later);
	read_file(&served, SIZE - 1, 1, 4096, 1, true, is_later);
	read_file(&served, UINT64_C(1) << 50, 100, 4096, 0, true, is_later);
	read_file(&served, 10, 0, 4096, 0, false, is_later);
	read_file(&served, 10, 100, 0, 0, false, is_later); /* a chunk of no bytes */
	served.accelerator->config.read_max = 8192;
	read_file(&served, 0, 100000, sizeof(chunk), 8192, false, is_later);
	EXPECT(served.accelerator->counters.taken == 13);
	EXPECT(served.slots->counters.reads == 13);
	EXPECT(served.slots->account.operations == 13 && served.slots->account.latency.count == 13);
	EXPECT(served.slots->account.read_bytes == served.slots->counters.read_bytes);
	EXPECT(served.slots->account.storage_ns && !served.slots->account.written_bytes);
	EXPECT(served.slots->counters.read_bytes ==
	       served.accelerator->kinds[LDMA_KIND_READ].bytes);
	EXPECT(served.accelerator->kinds[LDMA_KIND_READ].storage.count ==
	       served.accelerator->counters.at_once + served.accelerator->counters.by_worker);
	stop_serving(&served);
}

static void test_pieces_are_bounded(void)
{
	struct served served = serve(SIZE, 2);
	struct asked asked = ask(&served, 0, 0, SIZE);
	struct memory_call call;
	struct message m;

	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, sizeof(chunk));
	call.is_later = true;
	call.call.piece_bytes = 4096;
	EXPECT(offer(served.program, &call)); /* the transport looks at how many there are */
	EXPECT(call.pieces == (SIZE + 4095) / 4096 && call.data_length == SIZE);
	EXPECT(call.accesses == call.pieces && call.call.read_bytes == SIZE);
	expect_bytes(chunk, 0, SIZE);
	stop_serving(&served);
}

static void test_in_the_reply(void)
{
	struct served served = serve(SIZE, 1);
	struct asked asked = ask(&served, 0, 3, 1001);
	struct memory_call call;
	struct message m;

	asked.getattr = 1;
	asked.attributes[0] = 1 << 4; /* size */
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, NULL, 0);
	EXPECT(offer(served.program, &call));
	EXPECT(!call.data_length && !call.pieces && word(&call, RESULTS_AT) == 4);
	EXPECT(word(&call, BODY_AT) == 0 && word(&call, BODY_AT + 4) == 1001);
	expect_bytes(call.reply + BODY_AT + 8, 3, 1001);
	EXPECT(!memcmp(call.reply + BODY_AT + 8 + 1001, "\0\0\0\0\0\0\x09",
		       7)); /* padding, GETATTR */
	EXPECT(get64(call.reply + call.reply_length - 8) == SIZE);
	served.sequence[0]++;
	/* More than the reply has room for is not ours; at the end of the file it is. */
	asked = ask(&served, 0, 0, 4000);
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, NULL, 0);
	EXPECT(!offer(served.program, &call));
	asked.offset = SIZE - 10;
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	EXPECT(offer(served.program, &call));
	EXPECT(word(&call, BODY_AT) == 1 && word(&call, BODY_AT + 4) == 10);
	stop_serving(&served);
}

static void test_is_not_kept(void)
{
	struct served served = serve(SIZE, 1);
	struct ldma_sequence again = {.sequence = 1};
	uint32_t length;
	uint8_t *replay;

	read_file(&served, 0, 4096, 4096, 4096, false, false);
	EXPECT(ldma_slots_begin(served.slots, &again, 1, &replay, &length) ==
	       LDMA_NFS_RETRY_UNCACHED_REP);
	stop_serving(&served);
}

static void test_file_that_shrinks(void)
{
	struct served served = serve(SIZE, 1);
	struct asked asked = ask(&served, 0, 0, SIZE);
	struct memory_call call;
	struct message m;

	/* Its size is seen when the call is taken; the delay leaves time to cut it. */
	ldma_workers_set_delay(&served.accelerator->workers, 100000000);
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, sizeof(chunk));
	EXPECT(!sem_init(&call.is_replied, 0, 0));
	EXPECT(served.program->take(served.program, &call.call, NULL));
	EXPECT(!ftruncate(served.fd, 70000));
	while (sem_wait(&call.is_replied))
		EXPECT(errno == EINTR);
	EXPECT(word(&call, STATUS_AT) == 0 && word(&call, BODY_AT) == 1);
	EXPECT(word(&call, BODY_AT + 4) == 70000 && call.data_length == 70000);
	expect_bytes(chunk, 0, 70000);
	stop_serving(&served);
}

static void test_failure(void)
{
	struct served served = serve(SIZE, 1);
	struct asked asked = ask(&served, 0, 0, 4096);
	struct memory_call call;
	struct message m;
	int unreadable;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", served.fd);
	unreadable = open(path, O_WRONLY);
	EXPECT(unreadable >= 0 && ldma_opens_revoke(&served.accelerator->opens, other));
	EXPECT(!grant(&served, other, true, true, unreadable));
	close(unreadable);
	asked.getattr = 1;
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, sizeof(chunk));
	EXPECT(offer(served.program, &call));
	EXPECT(word(&call, STATUS_AT) == LDMA_NFS_IO && word(&call, RESULTS_AT) == 3);
	EXPECT(word(&call, OP_STATUS_AT) == LDMA_NFS_IO && !call.data_length);
	EXPECT(served.accelerator->kinds[LDMA_KIND_READ].errors == 1 && !served.slots->executing);
	stop_serving(&served);
}

static void test_lost_connection(bool is_later)
{
	struct served served = serve(SIZE, 1);
	struct asked asked = ask(&served, 0, 0, SIZE);
	struct memory_call call;
	struct message m;

	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, sizeof(chunk));
	call.lost_after = 2;
	call.is_later = is_later;
	EXPECT(offer(served.program, &call) && call.replies == 1);
	EXPECT(served.accelerator->counters.lost == 1 && !served.slots->executing);
	EXPECT(!served.slots->account.operations && !call.call.read_bytes);
	read_file(&served, 0, SIZE, sizeof(chunk), SIZE, true, false); /* the same sequence */
	stop_serving(&served);
}

int main(void)
{
	test_lengths(false, 1);
	test_lengths(true, 3);
	test_pieces_are_bounded();
	test_in_the_reply();
	test_is_not_kept();
	test_file_that_shrinks();
	test_failure();
	test_lost_connection(false);
	test_lost_connection(true);
	return 0;
}
