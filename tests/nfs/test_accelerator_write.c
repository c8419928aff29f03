/* SPDX-License-Identifier: BSD-2-Clause */
/* WRITEs and COMMITs without Python. */
#include "tests/nfs/served_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define LONG 200001
#define CHANGE_AND_SIZE (1u << 3 | 1u << 4)

static uint8_t data[LONG + 8];

/* What was asked of the kernel: these take the place of libc's. */
static uint32_t synced_writes, data_synced_writes, syncs, data_syncs;

/* A writer waits for these, if it is held. */
static bool is_held;
static sem_t may_write;

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags)
{
	while (__atomic_load_n(&is_held, __ATOMIC_ACQUIRE) && sem_wait(&may_write))
		EXPECT(errno == EINTR);
	__atomic_fetch_add(&synced_writes, flags == RWF_SYNC, __ATOMIC_RELAXED);
	__atomic_fetch_add(&data_synced_writes, flags == RWF_DSYNC, __ATOMIC_RELAXED);
	return syscall(SYS_pwritev2, fd, pieces, count, at, 0, flags);
}

int fsync(int fd)
{
	__atomic_fetch_add(&syncs, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	__atomic_fetch_add(&data_syncs, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_fdatasync, fd);
}

struct writing {
	uint64_t offset;
	uint32_t count, stable;
	bool is_in_message, is_later;
};

/* Writes, and returns the call with its reply. */
static struct memory_call write_file(struct served *served, struct writing what)
{
	struct asked asked = ask(served, 1, what.offset, what.count);
	struct memory_call call;
	struct message m;

	asked.stable = what.stable;
	asked.data = what.is_in_message ? data : NULL;
	asked.getattr = 1;
	asked.attributes[0] = CHANGE_AND_SIZE;
	uint32_t position = make_message(&m, LDMA_NFS_OP_WRITE, &asked);
	call = make_call(&m, NULL, 0);
	if (!what.is_in_message) {
		call.call.read_position = position;
		call.call.read_length = what.count;
		call.read_chunk = data;
	}
	call.is_later = what.is_later;
	EXPECT(offer(served->program, &call));
	served->sequence[1]++;
	EXPECT(!served->slots->executing);
	call.call.message = NULL; /* it is gone */
	return call;
}

static void expect_written(const struct served *served, const struct memory_call *call,
			   struct writing what, uint64_t size)
{
	static uint8_t is[LONG];

	EXPECT(word(call, STATUS_AT) == 0 && word(call, RESULTS_AT) == 4);
	EXPECT(word(call, BODY_AT) == what.count && word(call, BODY_AT + 4) == what.stable);
	EXPECT(get64(call->reply + BODY_AT + 8) == VERIFIER);
	EXPECT(get64(call->reply + call->reply_length - 8) == size);
	EXPECT(pread(served->fd, is, what.count, (off_t)what.offset) == (ssize_t)what.count);
	EXPECT(!memcmp(is, data, what.count));
}

static void fill(uint8_t salt)
{
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(byte_at(i) ^ salt);
}

static void test_ways_to_write(bool is_later)
{
	static const struct writing ways[] = {
		{0, 4096, LDMA_NFS_UNSTABLE, false, false},
		{100, 999, LDMA_NFS_UNSTABLE, true, false},
		{5, LONG, LDMA_NFS_UNSTABLE, false, false},
		{0, 4096, LDMA_NFS_DATA_SYNC, false, false},
		{9, LONG, LDMA_NFS_DATA_SYNC, false, false},
		{1, 100, LDMA_NFS_FILE_SYNC, true, false},
		{7, LONG, LDMA_NFS_FILE_SYNC, false, false},
	};
	struct served served = serve(0, 2);
	uint64_t change = 0, size = 0, bytes = 0;

	for (uint32_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct writing way = ways[i];
		struct memory_call call;

		way.is_later = is_later;
		fill((uint8_t)i);
		if (size < way.offset + way.count)
			size = way.offset + way.count;
		bytes += way.count;
		call = write_file(&served, way);
		expect_written(&served, &call, way, size);
		EXPECT(get64(call.reply + call.reply_length - 16) > change); /* each is another */
		change = get64(call.reply + call.reply_length - 16);
	}
	EXPECT(served.slots->counters.writes == 7 && served.slots->counters.written_bytes == bytes);
	EXPECT(served.accelerator->kinds[LDMA_KIND_WRITE].bytes == bytes);
	EXPECT(!served.accelerator->counters.at_once); /* writing is for workers */
	stop_serving(&served);
}

/* As stable as it says: one piece by itself, several by one sync behind them. */
static void test_stable_is_stable(void)
{
	struct served served = serve(0, 1);

	synced_writes = data_synced_writes = syncs = data_syncs = 0;
	write_file(&served, (struct writing){.count = LONG});
	EXPECT(!synced_writes && !data_synced_writes && !syncs && !data_syncs);
	write_file(&served, (struct writing){.count = 4096, .stable = LDMA_NFS_DATA_SYNC});
	EXPECT(data_synced_writes == 1);
	write_file(
		&served,
		(struct writing){.count = 10, .stable = LDMA_NFS_FILE_SYNC, .is_in_message = true});
	EXPECT(synced_writes == 1 && data_synced_writes == 1 && !syncs && !data_syncs);
	write_file(&served, (struct writing){.count = LONG, .stable = LDMA_NFS_DATA_SYNC});
	EXPECT(data_syncs == 1 && !syncs);
	write_file(&served, (struct writing){.count = LONG, .stable = LDMA_NFS_FILE_SYNC});
	EXPECT(data_syncs == 1 && syncs == 1 && synced_writes == 1 && data_synced_writes == 1);
	stop_serving(&served);
}

/* Threads of the server have privileges that would leave the bit where it is. */
static void test_set_user_id_is_lost(void)
{
	struct served served = serve(100, 1);
	struct stat status;

	EXPECT(!fchmod(served.fd, 04755));
	write_file(&served, (struct writing){.count = 10});
	EXPECT(!fstat(served.fd, &status) && (status.st_mode & 07777) == 0755);
	stop_serving(&served);
}

static void test_reply_is_kept(void)
{
	struct served served = serve(0, 1);
	struct memory_call call = write_file(&served, (struct writing){.count = 4096});
	struct ldma_sequence again = {.slot = 1, .sequence = 1};
	uint32_t length;
	uint8_t *replay;

	EXPECT(!ldma_slots_begin(served.slots, &again, 1, &replay, &length) && replay);
	EXPECT(length == call.reply_length - LDMA_RPC_REPLY_BYTES);
	EXPECT(!memcmp(replay, call.reply + LDMA_RPC_REPLY_BYTES, length));
	free(replay);
	stop_serving(&served);
}

static void test_failure(void)
{
	struct served served = serve(0, 1);
	struct rlimit limit, before;
	struct memory_call call;

	signal(SIGXFSZ, SIG_IGN);
	EXPECT(!getrlimit(RLIMIT_FSIZE, &before));
	limit = (struct rlimit){4096, before.rlim_max};
	EXPECT(!setrlimit(RLIMIT_FSIZE, &limit));
	call = write_file(&served, (struct writing){.offset = 4096, .count = 100});
	EXPECT(word(&call, STATUS_AT) == LDMA_NFS_FBIG && word(&call, RESULTS_AT) == 3);
	EXPECT(word(&call, OP_STATUS_AT) == LDMA_NFS_FBIG && call.reply_length == BODY_AT);
	/* In the middle of several pieces: the rest is not written. */
	call = write_file(&served, (struct writing){.count = LONG, .stable = LDMA_NFS_FILE_SYNC});
	EXPECT(word(&call, STATUS_AT) == LDMA_NFS_FBIG);
	EXPECT(!setrlimit(RLIMIT_FSIZE, &before));
	EXPECT(served.accelerator->kinds[LDMA_KIND_WRITE].errors == 2);
	EXPECT(served.slots->counters.writes == 0);
	EXPECT(*served.verifier == VERIFIER); /* nothing was lost that had been written */
	stop_serving(&served);
}

static void test_lost_connection(bool is_later)
{
	struct served served = serve(0, 1);
	struct asked asked = ask(&served, 1, 0, LONG);
	struct memory_call call;
	struct message m;

	fill(1);
	call = make_call(&m, NULL, 0);
	call.call.read_position = make_message(&m, LDMA_NFS_OP_WRITE, &asked);
	call.call.length = m.length;
	call.call.read_length = LONG;
	call.read_chunk = data;
	call.lost_after = 1;
	call.is_later = is_later;
	EXPECT(offer(served.program, &call) && call.replies == 1);
	EXPECT(served.accelerator->counters.lost == 1 && !served.slots->counters.executed);
	/* It comes again by another connection, with the sequence that it had. */
	call = write_file(&served, (struct writing){.count = LONG});
	expect_written(&served, &call, (struct writing){.count = LONG}, LONG);
	stop_serving(&served);
}

static void test_commit(void)
{
	struct served served = serve(100, 1);
	struct asked asked = ask(&served, 1, 0, 0);
	struct memory_call call;
	struct message m;

	make_message(&m, LDMA_NFS_OP_COMMIT, &asked);
	call = make_call(&m, NULL, 0);
	EXPECT(offer(served.program, &call));
	EXPECT(word(&call, STATUS_AT) == 0 && word(&call, RESULTS_AT) == 3);
	EXPECT(get64(call.reply + BODY_AT) == VERIFIER && call.reply_length == BODY_AT + 8);
	EXPECT(served.slots->counters.commits == 1);
	EXPECT(served.accelerator->kinds[LDMA_KIND_COMMIT].storage.count == 1);
	stop_serving(&served);
}

/* What can be written to but not synced: a file that is a device would be; here, a descriptor that cannot. */
static void test_commit_that_fails(void)
{
	struct served served = serve(100, 1);
	struct asked asked = ask(&served, 1, 0, 0);
	struct memory_call call;
	struct message m;
	char path[64];
	int pathless;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", served.fd);
	pathless = open(path, O_PATH);
	EXPECT(pathless >= 0 && ldma_opens_revoke(&served.accelerator->opens, other));
	EXPECT(!grant(&served, other, true, true, pathless));
	close(pathless);
	make_message(&m, LDMA_NFS_OP_COMMIT, &asked);
	call = make_call(&m, NULL, 0);
	EXPECT(offer(served.program, &call) && word(&call, STATUS_AT) == LDMA_NFS_IO);
	EXPECT(served.accelerator->counters.sync_failures == 1);
	EXPECT(*served.verifier != VERIFIER); /* all clients have to write again */
	stop_serving(&served);
}

static void wait_for_reply(struct memory_call *call)
{
	while (sem_wait(&call->is_replied))
		EXPECT(errno == EINTR);
}

/* Parts of one WRITE are one worker's, one after the other: others would only wait for the file. */
static void test_one_worker_writes(void)
{
	const struct writing what = {.count = LONG, .stable = LDMA_NFS_UNSTABLE};
	struct served served = serve(0, 3);
	struct ldma_workers *workers = &served.accelerator->workers;
	struct asked asked = ask(&served, 1, 0, LONG);
	struct memory_call call;
	uint32_t queued_most;
	struct message m;

	asked.getattr = 1;
	asked.attributes[0] = CHANGE_AND_SIZE;
	fill(99);
	EXPECT(!sem_init(&may_write, 0, 0));
	__atomic_store_n(&is_held, true, __ATOMIC_RELEASE);
	uint32_t position = make_message(&m, LDMA_NFS_OP_WRITE, &asked);
	call = make_call(&m, NULL, 0);
	call.call.piece_bytes = LONG / 8;
	call.call.read_position = position;
	call.call.read_length = LONG;
	call.read_chunk = data;
	EXPECT(!sem_init(&call.is_replied, 0, 0));
	EXPECT(served.program->take(served.program, &call.call, NULL));
	EXPECT(call.pieces == 9); /* all of them are there, and nothing is written */
	pthread_mutex_lock(&workers->lock);
	queued_most = workers->queued_most;
	pthread_mutex_unlock(&workers->lock);
	EXPECT(queued_most == 1);
	__atomic_store_n(&is_held, false, __ATOMIC_RELEASE);
	sem_post(&may_write);
	wait_for_reply(&call);
	expect_written(&served, &call, what, LONG);
	stop_serving(&served);
}

/* A verifier that changes meanwhile is not the one of data that is being written, but it is that of a COMMIT. */
static void test_verifier_that_changes(void)
{
	struct served served = serve(0, 1);
	struct asked writing = ask(&served, 1, 0, 5), committing = ask(&served, 2, 0, 0);
	struct memory_call write, commit;
	struct message one, two;

	ldma_workers_set_delay(&served.accelerator->workers, 50000000);
	writing.data = (const uint8_t *)"hello";
	make_message(&one, LDMA_NFS_OP_WRITE, &writing);
	make_message(&two, LDMA_NFS_OP_COMMIT, &committing);
	write = make_call(&one, NULL, 0);
	commit = make_call(&two, NULL, 0);
	EXPECT(!sem_init(&write.is_replied, 0, 0) && !sem_init(&commit.is_replied, 0, 0));
	EXPECT(served.program->take(served.program, &write.call, NULL));
	EXPECT(served.program->take(served.program, &commit.call, NULL));
	__atomic_store_n(served.verifier, 1, __ATOMIC_RELAXED);
	wait_for_reply(&write);
	wait_for_reply(&commit);
	EXPECT(get64(write.reply + BODY_AT + 8) == VERIFIER);
	EXPECT(get64(commit.reply + BODY_AT) == 1);
	stop_serving(&served);
}

static bool has_timer(struct ldma_workers *workers)
{
	bool has_timer;

	pthread_mutex_lock(&workers->lock);
	has_timer = workers->has_timer;
	pthread_mutex_unlock(&workers->lock);
	return has_timer;
}

/* A worker that waits for work that is due in an hour hears of some that is due at once; stopping waits for neither. */
static void test_shorter_delay(void)
{
	struct served served = serve(100, 1);
	struct asked first = ask(&served, 1, 0, 10), second = ask(&served, 2, 0, 10);
	static uint8_t chunk[10];
	struct memory_call late, soon;
	struct message one, two;

	make_message(&one, LDMA_NFS_OP_READ, &first);
	make_message(&two, LDMA_NFS_OP_READ, &second);
	late = make_call(&one, chunk, sizeof(chunk));
	soon = make_call(&two, chunk, sizeof(chunk));
	EXPECT(!sem_init(&late.is_replied, 0, 0) && !sem_init(&soon.is_replied, 0, 0));
	ldma_workers_set_delay(&served.accelerator->workers, UINT64_C(3600000000000));
	EXPECT(served.program->take(served.program, &late.call, NULL));
	while (!has_timer(&served.accelerator->workers))
		usleep(1000);
	ldma_workers_set_delay(&served.accelerator->workers, 1000000);
	EXPECT(served.program->take(served.program, &soon.call, NULL));
	wait_for_reply(&soon);
	ldma_workers_stop(&served.accelerator->workers);
	wait_for_reply(&late);
	EXPECT(word(&late, STATUS_AT) == 0);
	stop_serving(&served);
}

static void test_delay(void)
{
	enum { CALLS = SLOTS, DELAY_NS = 50000000 };
	struct served served = serve(LONG, 1);
	static struct memory_call calls[CALLS];
	static struct message m[CALLS];
	static uint8_t chunks[CALLS][4096];
	struct ldma_histogram *storage = &served.accelerator->kinds[LDMA_KIND_READ].storage;

	ldma_workers_set_delay(&served.accelerator->workers, DELAY_NS);
	for (uint32_t i = 0; i < CALLS; i++) {
		struct asked asked = ask(&served, i, i * 4096, 4096);

		make_message(&m[i], LDMA_NFS_OP_READ, &asked);
		calls[i] = make_call(&m[i], chunks[i], 4096);
		EXPECT(!sem_init(&calls[i].is_replied, 0, 0));
		EXPECT(served.program->take(served.program, &calls[i].call, NULL));
		if (i == CALLS / 2) /* those that come later may be due before */
			ldma_workers_set_delay(&served.accelerator->workers, DELAY_NS / 10);
	}
	for (uint32_t i = 0; i < CALLS; i++) {
		wait_for_reply(&calls[i]);
		EXPECT(word(&calls[i], STATUS_AT) == 0 && chunks[i][5] == byte_at(i * 4096 + 5));
	}
	EXPECT(!served.accelerator->counters.at_once);
	EXPECT(storage->count == CALLS);
	EXPECT(storage->sum_ns >= (CALLS / 2 + 1) * (uint64_t)DELAY_NS);
	stop_serving(&served);
}

int main(void)
{
	test_ways_to_write(false);
	test_ways_to_write(true);
	test_stable_is_stable();
	test_set_user_id_is_lost();
	test_reply_is_kept();
	test_failure();
	test_lost_connection(false);
	test_lost_connection(true);
	test_commit();
	test_commit_that_fails();
	test_one_worker_writes();
	test_verifier_that_changes();
	test_delay();
	test_shorter_delay();
	return 0;
}
