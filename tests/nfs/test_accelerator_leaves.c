/* SPDX-License-Identifier: BSD-2-Clause */
/* What is left to others, with nothing done: each reason alone, and the same call without it is taken. */
#include "tests/nfs/served_file.h"

static uint8_t chunk[8192];

static struct memory_call make_read(struct served *served, struct message *m, struct asked *asked)
{
	*asked = ask(served, 0, 0, 4096);
	make_message(m, LDMA_NFS_OP_READ, asked);
	return make_call(m, chunk, sizeof(chunk));
}

/* The call is left for this reason, and the slot knows nothing of it. */
static void expect_left(struct served *served, struct memory_call *call, const uint64_t *why)
{
	uint64_t before = *why, taken = served->accelerator->counters.taken;
	struct ldma_slots_counters counters = served->slots->counters;

	wait_until_idle(served);
	EXPECT(!offer(served->program, call));
	EXPECT(*why == before + 1 && served->accelerator->counters.taken == taken);
	EXPECT(!memcmp(&counters, &served->slots->counters, sizeof(counters)));
	EXPECT(!served->slots->executing && !ldma_accelerator_in_use(served->accelerator));
}

static void expect_taken(struct served *served)
{
	struct memory_call call;
	struct asked asked;
	struct message m;

	call = make_read(served, &m, &asked);
	EXPECT(offer(served->program, &call) && word(&call, STATUS_AT) == 0);
	served->sequence[0]++;
}

static void leave(struct served *served, enum ldma_nfs_op op, struct asked asked,
		  const uint64_t *why)
{
	struct memory_call call;
	struct message m;

	make_message(&m, op, &asked);
	call = make_call(&m, op == LDMA_NFS_OP_READ ? chunk : NULL, sizeof(chunk));
	expect_left(served, &call, why);
	expect_taken(served);
}

static void test_sessions(struct served *served)
{
	static const uint8_t stranger[LDMA_SESSION_ID_BYTES] = "somebody else's";
	const uint64_t *why = &served->accelerator->counters.left_session;
	struct asked asked = ask(served, 0, 0, 4096);
	struct memory_call call;
	struct message m;

	asked.session_id = stranger;
	leave(served, LDMA_NFS_OP_READ, asked, why);
	call = make_read(served, &m, &asked);
	call.call.connection = 2;
	expect_left(served, &call, why);
	ldma_slots_bind(served->slots, 2);
	EXPECT(offer(served->program, &call));
	served->sequence[0]++;
	ldma_slots_unbind(served->slots, 2);
	call = make_read(served, &m, &asked);
	call.call.connection = 2;
	expect_left(served, &call, why);
	EXPECT(ldma_sessions_remove(&served->accelerator->sessions, served->slots));
	EXPECT(!ldma_sessions_remove(&served->accelerator->sessions, served->slots));
	call = make_read(served, &m, &asked);
	expect_left(served, &call, why);
	EXPECT(!ldma_sessions_add(&served->accelerator->sessions, served->slots));
	EXPECT(ldma_sessions_add(&served->accelerator->sessions, served->slots) == -EEXIST);
	expect_taken(served);
}

static void test_stateids(struct served *served)
{
	static const uint8_t unknown[LDMA_OTHER_BYTES] = "nobody's one", zeros[LDMA_OTHER_BYTES];
	const uint64_t *why = &served->accelerator->counters.left_stateid;
	struct ldma_grant_access access = {2, true, true};
	struct asked asked = ask(served, 0, 0, 4096);

	asked.other = unknown;
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.other = zeros; /* the anonymous one */
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.handle = "handlf";
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.handle = "handle and more";
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.uid = UID + 1;
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.is_auth_none = true;
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.seqid = 2; /* of the future */
	leave(served, LDMA_NFS_OP_READ, asked, why);
	EXPECT(ldma_opens_update(&served->accelerator->opens, other, access));
	asked.sequence = served->sequence[0] + 1;
	asked.seqid = 1; /* of the past */
	struct message m;
	struct memory_call call = make_read(served, &m, &asked);
	expect_left(served, &call, why);
	asked.seqid = 0; /* the newest, whatever it is */
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	EXPECT(offer(served->program, &call));
	served->sequence[0]++;
	access.seqid = 1;
	EXPECT(ldma_opens_update(&served->accelerator->opens, other, access));
	expect_taken(served);
	EXPECT(!ldma_opens_update(&served->accelerator->opens, unknown, access));
}

static void test_access(struct served *served)
{
	const uint64_t *why = &served->accelerator->counters.left_stateid;
	struct ldma_opens *opens = &served->accelerator->opens;
	struct ldma_grant_access access = {1, true, false};
	struct asked asked = ask(served, 0, 0, 5);

	EXPECT(ldma_opens_update(opens, other, access));
	asked.data = (const uint8_t *)"hello";
	leave(served, LDMA_NFS_OP_WRITE, asked, why);
	asked = ask(served, 0, 0, 0);
	leave(served, LDMA_NFS_OP_COMMIT, asked, why);
	access = (struct ldma_grant_access){1, false, true};
	EXPECT(ldma_opens_update(opens, other, access));
	struct message m;
	struct memory_call call = make_read(served, &m, &asked);
	expect_left(served, &call, why);
	EXPECT(ldma_opens_revoke(opens, other) && !ldma_opens_revoke(opens, other));
	expect_left(served, &call, why);
	EXPECT(!grant(served, other, true, true, served->fd));
	EXPECT(grant(served, other, true, true, served->fd) == -EEXIST);
	expect_taken(served);
}

static void test_another_client(struct served *served)
{
	static const uint8_t id[LDMA_SESSION_ID_BYTES] = "another client";
	struct ldma_slots *slots = ldma_slots_create(id, CLIENT + 1, 1, 4096);
	struct asked asked = ask(served, 0, 0, 4096);
	struct memory_call call;
	struct message m;

	EXPECT(!ldma_sessions_add(&served->accelerator->sessions, slots));
	ldma_slots_bind(slots, 1);
	asked.session_id = id;
	asked.sequence = 1;
	asked.highest = 0;
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, sizeof(chunk));
	expect_left(served, &call, &served->accelerator->counters.left_stateid);
	EXPECT(!slots->counters.executed);
	EXPECT(ldma_sessions_remove(&served->accelerator->sessions, slots));
	ldma_slots_put(slots);
}

static void test_slots(struct served *served)
{
	const uint64_t *why = &served->accelerator->counters.left_slot;
	struct asked asked = ask(served, 0, 0, 4096);

	asked.sequence += 1;
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.sequence -= 1; /* a retry */
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.slot = SLOTS;
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 4096);
	asked.highest = SLOTS;
	leave(served, LDMA_NFS_OP_READ, asked, why);
}

static void test_limits(struct served *served)
{
	const uint64_t *why = &served->accelerator->counters.left_limit;
	struct asked asked = ask(served, 0, 0, 4096);
	struct memory_call call;
	struct message m;

	asked.cache_this = 1; /* of data */
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, (uint64_t)INT64_MAX - 4095, 4096);
	leave(served, LDMA_NFS_OP_READ, asked, why);
	asked = ask(served, 0, 0, 0);
	asked.data = (const uint8_t *)"";
	leave(served, LDMA_NFS_OP_WRITE, asked, why);
	call = make_read(served, &m, &asked);
	call.call.reply_room = LDMA_COMPOUND_REPLY_MAX - 1;
	expect_left(served, &call, why);
	call = make_read(served, &m, &asked);
	served->slots->response_max = 4096 + 100;
	expect_left(served, &call, why);
	served->slots->response_max = UINT32_MAX;
	served->slots->request_max = m.length - 1;
	expect_left(served, &call, why);
	served->slots->request_max = m.length;
	expect_taken(served);
	served->slots->request_max = UINT32_MAX;
	asked = ask(served, 0, 0, 4096);
	make_message(&m, 70, &asked); /* not an operation of ours */
	call = make_call(&m, chunk, sizeof(chunk));
	expect_left(served, &call, &served->accelerator->counters.left_shape);
	expect_taken(served);
}

static void test_replies_that_cannot_be_kept(void)
{
	static const uint8_t id[LDMA_SESSION_ID_BYTES] = "keeps little";
	struct served served = serve(10000, 1);
	struct ldma_slots *slots = ldma_slots_create(id, CLIENT, 1, 100);
	struct asked asked = ask(&served, 0, 0, 5);
	struct memory_call call;
	struct message m;

	EXPECT(!ldma_sessions_add(&served.accelerator->sessions, slots));
	ldma_slots_bind(slots, 1);
	asked.session_id = id;
	asked.highest = 0;
	asked.data = (const uint8_t *)"hello";
	asked.cache_this = 1;
	make_message(&m, LDMA_NFS_OP_WRITE, &asked);
	call = make_call(&m, NULL, 0);
	expect_left(&served, &call, &served.accelerator->counters.left_limit);
	asked.cache_this = 0;
	make_message(&m, LDMA_NFS_OP_WRITE, &asked);
	EXPECT(offer(served.program, &call));
	ldma_slots_put(slots);
	stop_serving(&served);
}

static void test_operations_are_bounded(void)
{
	struct served served = serve(10000, 1);
	struct asked asked = ask(&served, 0, 0, 100);
	struct memory_call first, second;
	struct message one, two;

	served.accelerator->config.operations = 1;
	ldma_workers_set_delay(&served.accelerator->workers, 20000000);
	make_message(&one, LDMA_NFS_OP_READ, &asked);
	first = make_call(&one, chunk, sizeof(chunk));
	EXPECT(!sem_init(&first.is_replied, 0, 0));
	EXPECT(served.program->take(served.program, &first.call, NULL));
	asked = ask(&served, 1, 0, 100);
	make_message(&two, LDMA_NFS_OP_READ, &asked);
	second = make_call(&two, chunk, sizeof(chunk));
	EXPECT(!offer(served.program, &second));
	EXPECT(served.accelerator->counters.left_limit == 1);
	while (sem_wait(&first.is_replied))
		EXPECT(errno == EINTR);
	wait_until_idle(&served);
	EXPECT(offer(served.program, &second));
	wait_until_idle(&served);
	ldma_accelerator_close(served.accelerator);
	asked.sequence++;
	make_message(&two, LDMA_NFS_OP_READ, &asked);
	EXPECT(!offer(served.program, &second));
	stop_serving(&served);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_revoked_while_in_use(void)
{
	struct served served = serve(10000, 1);
	struct asked asked = ask(&served, 0, 0, 100);
	struct memory_call call;
	struct message m;
	int fd = -1;

	for (uint32_t i = 0; i < LDMA_OPENS_BUCKETS; i++)
		if (served.accelerator->opens.by_other[i])
			fd = served.accelerator->opens.by_other[i]->fd;
	EXPECT(is_open(fd) && fd != served.fd);
	ldma_workers_set_delay(&served.accelerator->workers, 100000000);
	make_message(&m, LDMA_NFS_OP_READ, &asked);
	call = make_call(&m, chunk, sizeof(chunk));
	EXPECT(!sem_init(&call.is_replied, 0, 0));
	EXPECT(served.program->take(served.program, &call.call, NULL));
	EXPECT(ldma_opens_revoke(&served.accelerator->opens, other));
	EXPECT(is_open(fd));
	while (sem_wait(&call.is_replied))
		EXPECT(errno == EINTR);
	EXPECT(word(&call, STATUS_AT) == 0 && call.data_length == 100);
	wait_until_idle(&served);
	EXPECT(!is_open(fd));
	stop_serving(&served);
}

static void test_grants_are_for_files(void)
{
	struct served served = serve(1, 1);
	static const uint8_t another[LDMA_OTHER_BYTES] = "another";
	struct ldma_grant_access access = {1, true, true};
	uint8_t handle[LDMA_HANDLE_MAX + 1] = {0};
	int folder = open("/", O_RDONLY | O_DIRECTORY);

	EXPECT(grant(&served, another, true, false, folder) == -EINVAL);
	EXPECT(grant(&served, another, true, false, -1) == -EBADF);
	EXPECT(ldma_opens_grant(&served.accelerator->opens, another, access, handle, sizeof(handle),
				served.fd, 1, 1) == -EINVAL);
	close(folder);
	stop_serving(&served);
}

int main(void)
{
	struct served served = serve(10000, 1);

	expect_taken(&served);
	test_sessions(&served);
	test_stateids(&served);
	test_access(&served);
	test_another_client(&served);
	test_slots(&served);
	test_limits(&served);
	stop_serving(&served);
	test_replies_that_cannot_be_kept();
	test_operations_are_bounded();
	test_revoked_while_in_use();
	test_grants_are_for_files();
	return 0;
}
