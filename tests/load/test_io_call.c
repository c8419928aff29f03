/* SPDX-License-Identifier: BSD-2-Clause */
/* Replies to the load's calls: what is whole is understood, and nothing else is, wherever it ends and whatever it says. */
#undef NDEBUG
#include <assert.h>
#include <stdlib.h>

#include "tests/load/load_server.h"

static struct server server = {.target = 5};

static uint32_t answered(bool is_write, bool places, const struct ldma_io *io, uint8_t *ret)
{
	uint8_t call[LDMA_IO_CALL_MOST + SERVER_SIZE] = {0};
	struct ldma_io_template template;

	assert(!ldma_io_template_init(&template, &server_target, is_write));
	ldma_io_patch(&template, io);
	memcpy(call, template.message, template.length);
	assert(template.length == (is_write ? 140 : 136));
	return server_reply(&server, call, true, places, ret);
}

/* Of memory that is no longer than it, so that ASan sees a read beyond it. */
static enum ldma_io_verdict parse(const uint8_t *reply, uint32_t length, uint32_t placed,
				  const struct ldma_io *io, bool is_write,
				  struct ldma_io_reply *ret)
{
	uint8_t *exact = malloc(length ? length : 1);
	enum ldma_io_verdict verdict;
	volatile uint8_t sum = 0;

	assert(exact);
	memcpy(exact, reply, length);
	verdict = ldma_io_parse(exact, length, placed, server_target.session, io, is_write, ret);
	for (uint32_t i = 0; verdict == LDMA_IO_DONE && ret->data && i < ret->count; i++)
		sum = (uint8_t)(sum + ret->data[i]);
	free(exact);
	return verdict;
}

static void test_whole(bool is_write, bool places)
{
	const struct ldma_io io = {3, 9, 3, SERVER_SIZE, SERVER_SIZE};
	uint32_t placed = places ? SERVER_SIZE : 0;
	uint8_t reply[SERVER_REPLY_MOST];
	uint32_t length = answered(is_write, places, &io, reply);
	struct ldma_io_reply got;

	assert(parse(reply, length, placed, &io, is_write, &got) == LDMA_IO_DONE);
	assert(got.count == SERVER_SIZE && got.has_sequence && got.target == 5 && !got.status);
	for (uint32_t cut = 0; cut < length; cut++)
		assert(parse(reply, cut, placed, &io, is_write, &got) == LDMA_IO_MALFORMED);
	if (places) /* other than what the transport says */
		assert(parse(reply, length, placed - 1, &io, is_write, &got) == LDMA_IO_MALFORMED);
}

static void test_mutated(bool is_write)
{
	const struct ldma_io io = {3, 9, 3, SERVER_SIZE, SERVER_SIZE};
	uint8_t reply[SERVER_REPLY_MOST];
	uint32_t length = answered(is_write, false, &io, reply);
	struct ldma_io_reply got;

	srandom(1);
	for (uint32_t round = 0; round < 20000; round++) {
		uint8_t mutated[SERVER_REPLY_MOST];
		uint32_t words = length < 160 ? length / 4 : 40;

		memcpy(mutated, reply, length);
		for (long i = random() % 3; i >= 0; i--)
			put32(mutated + random() % words * 4,
			      random() % 2 ? (uint32_t)random() : (uint32_t)(random() % 8) - 1);
		if (parse(mutated, length, (uint32_t)(random() % 2 * random()), &io, is_write,
			  &got) == LDMA_IO_DONE)
			assert(got.count <= io.count && got.has_sequence);
	}
}

static void test_failed(void)
{
	const struct ldma_io io = {0, 1, 0, 0, 64};
	/* XID, reply, accepted, no verifier, success; DELAY, no tag, one result: SEQUENCE failed */
	const uint32_t words[] = {9, 1, 0, 0, 0, 0, 10008, 0, 1, 53, 10008};
	uint8_t reply[sizeof(words)];
	struct ldma_io_reply got;

	for (uint32_t i = 0; i < sizeof(words) / 4; i++)
		put32(reply + 4 * i, words[i]);
	assert(parse(reply, sizeof(reply), 0, &io, false, &got) == LDMA_IO_FAILED);
	assert(got.status == 10008 && got.operation == 53 && !got.has_sequence);
	put32(reply + 40, 10009); /* another status than the COMPOUND's */
	assert(parse(reply, sizeof(reply), 0, &io, false, &got) == LDMA_IO_MALFORMED);
	put32(reply + 8, 1); /* denied: by RPC_MISMATCH or AUTH_ERROR */
	put32(reply + 12, 1);
	assert(parse(reply, sizeof(reply), 0, &io, false, &got) == LDMA_IO_REFUSED);
	assert(got.status == 1001);
}

static void test_limits(void)
{
	struct ldma_io_target target = server_target;
	struct ldma_io_template template;

	target.handle_length = LDMA_HANDLE_MOST;
	target.credential_length = LDMA_CREDENTIAL_MOST;
	assert(!ldma_io_template_init(&template, &target, true));
	assert(template.length == LDMA_IO_CALL_MOST);
	target.handle_length++;
	assert(ldma_io_template_init(&template, &target, true) < 0);
	target = server_target;
	target.credential_length = 15;
	assert(ldma_io_template_init(&template, &target, true) < 0);
}

int main(void)
{
	test_whole(false, false);
	test_whole(false, true);
	test_whole(true, false);
	test_mutated(false);
	test_mutated(true);
	test_failed();
	test_limits();
	return 0;
}
