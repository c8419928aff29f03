/* SPDX-License-Identifier: BSD-2-Clause */
/* Records in a stream: whatever pieces they come in, they are the same; those that are too long end it. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "rpc/stream.h"

#define MOST 1000
#define RECORDS 500

static void write_all(int fd, const void *data, size_t length)
{
	assert(write(fd, data, length) == (ssize_t)length);
}

static uint32_t length_of(uint32_t record)
{
	return record * 7919 % MOST + 1;
}

/* A record in fragments of any length. */
static size_t encode(uint32_t record, uint8_t *ret)
{
	uint32_t left = length_of(record);
	uint8_t *at = ret;

	while (left) {
		uint32_t part = random() % 3 ? left : (uint32_t)random() % left + 1;

		put32(at, part | (part == left ? 0x80000000u : 0));
		memset(at + 4, (int)record, part);
		at += 4 + part;
		left -= part;
	}
	return (size_t)(at - ret);
}

static void take_all(struct ldma_stream *stream, uint32_t *record)
{
	const uint8_t *found;
	uint32_t length;

	assert(ldma_stream_receive(stream) >= 0);
	while (ldma_stream_next(stream, &found, &length) == 1) {
		assert(length == length_of(*record));
		for (uint32_t i = 0; i < length; i++)
			assert(found[i] == (uint8_t)*record);
		++*record;
	}
}

static void test_pieces(int near, int far)
{
	uint8_t wire[8 * MOST];
	struct ldma_stream stream;
	uint32_t record = 0;

	srandom(2);
	assert(!ldma_stream_init(&stream, near, 4096, MOST));
	assert(!ldma_stream_receive(&stream)); /* nothing yet */
	for (uint32_t i = 0; i < RECORDS; i++) {
		size_t length = encode(i, wire), sent = 0;

		while (sent < length) {
			size_t part = (size_t)random() % (length - sent) + 1;

			write_all(far, wire + sent, part);
			sent += part;
			if (random() % 2)
				take_all(&stream, &record);
		}
	}
	take_all(&stream, &record);
	while (record < RECORDS)
		take_all(&stream, &record);
	ldma_stream_destroy(&stream);
}

static void test_sending(int near, int far)
{
	struct ldma_stream stream;
	uint32_t sent = 0, got = 0;
	uint8_t byte[4096];

	assert(!ldma_stream_init(&stream, near, 4096, MOST));
	assert(!ldma_stream_reserve(&stream, 4093)); /* with its mark, too long for ever */
	while (sent < 2000) {
		uint8_t *at = ldma_stream_reserve(&stream, 100);

		if (at) {
			memset(at, (int)sent, 100);
			sent++;
			continue;
		}
		assert(!ldma_stream_flush(&stream));
		if (!ldma_stream_is_flushed(&stream))
			assert(read(far, byte, sizeof(byte)) > 0);
		got++;
	}
	assert(got > 0);
	ldma_stream_destroy(&stream);
}

static void test_broken(uint32_t mark, int wanted)
{
	struct ldma_stream stream;
	const uint8_t *found;
	uint32_t length;
	uint8_t wire[4];
	int ends[2];

	assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
	assert(!ldma_stream_init(&stream, ends[0], 4096, MOST));
	put32(wire, mark);
	write_all(ends[1], wire, 4);
	assert(ldma_stream_receive(&stream) == 4);
	assert(ldma_stream_next(&stream, &found, &length) == wanted);
	close(ends[1]);
	assert(ldma_stream_receive(&stream) == -ECONNRESET);
	ldma_stream_destroy(&stream);
	close(ends[0]);
}

int main(void)
{
	int ends[2];

	assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	assert(!fcntl(ends[0], F_SETFL, O_NONBLOCK));
	test_pieces(ends[0], ends[1]);
	test_sending(ends[0], ends[1]);
	close(ends[0]);
	close(ends[1]);
	test_broken(0x80000000u | (MOST + 1), -EPROTO);
	test_broken(MOST + 1, -EPROTO);
	test_broken(0xffffffffu, -EPROTO);
	test_broken(0, -EPROTO); /* a fragment of nothing, and more to come, for ever */
	test_broken(0x80000000u, 1);
	test_broken(MOST, 0);
	return 0;
}
