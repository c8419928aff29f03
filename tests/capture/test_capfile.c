/* SPDX-License-Identifier: BSD-2-Clause */
/* What the reader and the writer promise in C, where Python cannot look. */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/capfile.h"
#include "capture/pcapng_write.h"

static const uint8_t frame[61] = {1, 2, 3};

static size_t write_file(uint8_t *buf, size_t size)
{
	const struct ldma_pcapng_packet packet = {
		.frame = frame,
		.time_ns = 1234567890123456789,
		.captured = sizeof(frame),
		.length = 100,
		.direction = LDMA_DIRECTION_TX,
	};
	const struct ldma_pcapng_statistics statistics = {
		.received = 7,
		.dropped = 2,
		.dropped_later = 3,
		.start_ns = 1,
		.end_ns = 2,
	};
	size_t used = ldma_pcapng_section(buf, size, "hardware", NULL, "test");

	used += ldma_pcapng_interface(buf + used, size - used, LDMA_LINK_ETHERNET, 0, "eth0");
	used += ldma_pcapng_packet(buf + used, size - used, &packet);
	used += ldma_pcapng_statistics(buf + used, size - used, &statistics);
	return used;
}

static void test_write_then_read(void)
{
	uint8_t buf[1024];
	size_t size = write_file(buf, sizeof(buf)), pos = 0, consumed;
	enum ldma_capfile_step step;
	struct ldma_capfile file;
	struct ldma_capfile_frame got = {0};

	ldma_capfile_init(&file);
	do {
		step = ldma_capfile_next(&file, buf + pos, size - pos, true, &got, &consumed);
		pos += consumed;
	} while (step == LDMA_CAPFILE_FRAME || step == LDMA_CAPFILE_SKIP);
	assert(step == LDMA_CAPFILE_END && pos == size && file.frames == 1);
	assert(got.time_ns == 1234567890123456789 && got.captured == sizeof(frame));
	assert(got.length == 100 && got.direction == LDMA_DIRECTION_TX);
	assert(!memcmp(got.bytes, frame, sizeof(frame)));
	assert(ldma_capfile_dropped(&file) == 5 && file.interfaces[0].received == 7);
	assert(!strcmp(file.interfaces[0].name, "eth0"));
	ldma_capfile_destroy(&file);
	ldma_capfile_destroy(&file);
}

/* A block that does not fit is 0, never a byte too far: the buffer is an allocation of its exact size. */
static void test_no_room(void)
{
	const struct ldma_pcapng_packet packet = {
		.frame = frame, .captured = sizeof(frame), .direction = LDMA_DIRECTION_RX};
	const struct ldma_pcapng_packet huge = {.frame = frame, .captured = UINT32_MAX};
	const struct ldma_pcapng_statistics statistics = {.start_ns = 1};

	for (size_t size = 1; size < 200; size++) {
		uint8_t *buf = malloc(size);

		assert(ldma_pcapng_section(buf, size, "a", "bb", "ccc") <= size);
		assert(ldma_pcapng_interface(buf, size, 1, 0, "name") <= size);
		assert(ldma_pcapng_packet(buf, size, &packet) == (size < 108 ? 0 : 108));
		assert(ldma_pcapng_packet(buf, size, &huge) == 0);
		assert(ldma_pcapng_statistics(buf, size, &statistics) <= size);
		free(buf);
	}
}

/* An error stays one, and asks for nothing more. */
static void test_error_is_final(void)
{
	struct ldma_capfile file;
	struct ldma_capfile_frame got;
	size_t consumed;

	ldma_capfile_init(&file);
	for (int i = 0; i < 3; i++) {
		assert(ldma_capfile_next(&file, (const uint8_t *)"nope", 4, false, &got,
					 &consumed) == LDMA_CAPFILE_ERROR);
		assert(consumed == 0);
	}
	assert(!strcmp(file.error, "not a pcap or pcapng file (starts with 6e 6f 70 65)"));
	ldma_capfile_destroy(&file);
}

static void test_interface_limit(void)
{
	uint8_t buf[64];
	size_t size = ldma_pcapng_section(buf, sizeof(buf), NULL, NULL, NULL), consumed, used;
	struct ldma_capfile file;
	struct ldma_capfile_frame got;

	ldma_capfile_init(&file);
	for (used = 0; used < size; used += consumed)
		assert(ldma_capfile_next(&file, buf + used, size - used, false, &got, &consumed) ==
		       LDMA_CAPFILE_SKIP);
	size = ldma_pcapng_interface(buf, sizeof(buf), LDMA_LINK_ETHERNET, 0, NULL);
	for (uint32_t i = 0; i < LDMA_CAPFILE_INTERFACES_MAX; i++)
		assert(ldma_capfile_next(&file, buf, size, false, &got, &consumed) ==
		       LDMA_CAPFILE_SKIP);
	assert(ldma_capfile_next(&file, buf, size, false, &got, &consumed) == LDMA_CAPFILE_ERROR);
	assert(!strncmp(file.error, "more than 4096 interfaces", 25));
	ldma_capfile_destroy(&file);
}

int main(void)
{
	test_write_then_read();
	test_no_room();
	test_error_is_final();
	test_interface_limit();
	puts("ok");
	return 0;
}
