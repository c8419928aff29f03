/* SPDX-License-Identifier: BSD-2-Clause */
/* A file, an accelerator that serves it to one session, and calls for it. */
#ifndef LDMA_TEST_SERVED_FILE_H
#define LDMA_TEST_SERVED_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "nfs/accelerator.h"
#include "tests/nfs/memory_transport.h"

#define VERIFIER UINT64_C(0x1122334455667788)
#define CLIENT 77
#define UID 1000
#define SLOTS 8

static const uint8_t session_id[LDMA_SESSION_ID_BYTES] = "the one session";
static const uint8_t other[LDMA_OTHER_BYTES] = "an open one";

struct served {
	struct ldma_accelerator *accelerator;
	struct ldma_changes *changes;
	uint64_t *verifier;
	struct ldma_program *program;
	struct ldma_slots *slots;
	int fd;
	uint32_t sequence[SLOTS];
};

static inline uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

static inline int make_file(uint64_t bytes)
{
	const char *folder = getenv("TMPDIR");
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/livedma-served-XXXXXX", folder ? folder : "/tmp");
	fd = mkstemp(path);
	EXPECT(fd >= 0 && !unlink(path));
	for (uint64_t at = 0; at < bytes;) {
		uint8_t block[4096];
		uint64_t length = bytes - at < sizeof(block) ? bytes - at : sizeof(block);

		for (uint64_t i = 0; i < length; i++)
			block[i] = byte_at(at + i);
		EXPECT(pwrite(fd, block, length, (off_t)at) == (ssize_t)length);
		at += length;
	}
	return fd;
}

static inline int grant(struct served *served, const uint8_t *stateid_other, bool is_readable,
			bool is_writable, int fd)
{
	struct ldma_grant_access access = {1, is_readable, is_writable};

	return ldma_opens_grant(&served->accelerator->opens, stateid_other, access,
				(const uint8_t *)"handle", 6, fd, CLIENT, UID);
}

static inline struct served serve(uint64_t bytes, uint32_t threads)
{
	struct ldma_accelerator_config config = {
		.threads = threads, .operations = 64, .read_max = 1 << 20};
	struct served served = {.fd = make_file(bytes),
				.changes = calloc(1, sizeof(*served.changes)),
				.verifier = malloc(sizeof(uint64_t))};

	EXPECT(served.changes && served.verifier);
	*served.verifier = VERIFIER;
	EXPECT(!ldma_accelerator_create(&config, served.changes, served.verifier,
					&served.accelerator));
	served.program = &served.accelerator->program;
	served.slots = ldma_slots_create(session_id, CLIENT, SLOTS, 4096);
	EXPECT(served.slots && !ldma_sessions_add(&served.accelerator->sessions, served.slots));
	ldma_slots_bind(served.slots, 1);
	EXPECT(!grant(&served, other, true, true, served.fd));
	return served;
}

/* A call has its reply a moment before it is over. */
static inline void wait_until_idle(const struct served *served)
{
	for (int looks = 0; ldma_accelerator_in_use(served->accelerator); looks++) {
		EXPECT(looks < 10000);
		usleep(1000);
	}
}

static inline void stop_serving(struct served *served)
{
	ldma_accelerator_close(served->accelerator);
	wait_until_idle(served);
	ldma_accelerator_destroy(served->accelerator);
	ldma_slots_put(served->slots);
	free(served->changes);
	free(served->verifier);
	close(served->fd);
}

/* What is asked of the file, on a slot, with its next sequence. */
static inline struct asked ask(struct served *served, uint32_t slot, uint64_t offset,
			       uint32_t count)
{
	return (struct asked){.xid = 9,
			      .uid = UID,
			      .session_id = session_id,
			      .sequence = served->sequence[slot] + 1,
			      .slot = slot,
			      .highest = SLOTS - 1,
			      .other = other,
			      .seqid = 1,
			      .offset = offset,
			      .count = count};
}

/* Of a reply without a tag. */
enum {
	STATUS_AT = 24,
	RESULTS_AT = 32,
	OP_STATUS_AT = 36 + 44 + 8 + 4,
	BODY_AT = OP_STATUS_AT + 4
};

static inline uint32_t word(const struct memory_call *call, uint32_t at)
{
	EXPECT(at + 4 <= call->reply_length);
	return get32(call->reply + at);
}

#endif
