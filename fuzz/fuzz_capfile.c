/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads any bytes as a capture file: whole, in pieces and into batches. All three must see the same. */
#include <stdlib.h>
#include <string.h>

#include "capture/capfile.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What one reading saw. */
struct seen {
	enum ldma_capfile_step last;
	uint64_t frames, offset, hash, dropped, contradictions, roce, other;
	uint32_t interfaces;
	char error[160];
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

static void see_frame(struct seen *seen, const struct ldma_capfile_frame *frame)
{
	CHECK(frame->captured <= frame->length && frame->captured <= LDMA_CAPFILE_FRAME_MAX);
	seen->hash = mix(seen->hash, frame->time_ns);
	seen->hash = mix(seen->hash, (uint64_t)frame->captured << 32 | frame->length);
	seen->hash = mix(seen->hash, (uint64_t)frame->link << 32 | frame->interface);
	seen->hash = mix(seen->hash, frame->direction);
	for (uint32_t i = 0; i < frame->captured; i++)
		seen->hash = mix(seen->hash, frame->bytes[i]);
}

static void see_end(struct seen *seen, const struct ldma_capfile *file, enum ldma_capfile_step last)
{
	uint64_t frames = 0;

	for (uint32_t i = 0; i < file->interface_count; i++) {
		CHECK(memchr(file->interfaces[i].name, 0, sizeof(file->interfaces[i].name)));
		frames += file->interfaces[i].frames;
	}
	CHECK(frames == file->frames);
	CHECK((last == LDMA_CAPFILE_ERROR) == (file->error[0] != 0));
	seen->last = last;
	seen->frames = file->frames;
	seen->offset = file->offset;
	seen->dropped = ldma_capfile_dropped(file);
	seen->contradictions = file->contradictions;
	seen->interfaces = file->interface_count;
	memcpy(seen->error, file->error, sizeof(seen->error));
}

/* Offers at most `piece` bytes more each time; the bytes are in an allocation of their exact size. */
static struct seen read_pieces(const uint8_t *data, size_t size, size_t piece)
{
	size_t pos = 0, end = 0, consumed, wanted = 0;
	enum ldma_capfile_step step;
	struct ldma_capfile file;
	struct seen seen = {0};

	ldma_capfile_init(&file);
	do {
		struct ldma_capfile_frame frame;
		uint8_t *copy;

		while (end < size && (end - pos < wanted || end == pos))
			end += piece < size - end ? piece : size - end;
		copy = malloc(end - pos ? end - pos : 1);
		memcpy(copy, data + pos, end - pos);
		step = ldma_capfile_next(&file, copy, end - pos, end == size, &frame, &consumed);
		CHECK(consumed <= end - pos);
		if (step == LDMA_CAPFILE_FRAME)
			see_frame(&seen, &frame);
		if (step == LDMA_CAPFILE_NEED) {
			CHECK(consumed == 0 && file.need > end - pos && end < size);
			CHECK(file.need <= LDMA_CAPFILE_BLOCK_MAX);
		}
		wanted = step == LDMA_CAPFILE_NEED ? file.need : 0;
		pos += consumed;
		CHECK(file.offset == pos);
		free(copy);
	} while (step < LDMA_CAPFILE_FULL);
	see_end(&seen, &file, step);
	ldma_capfile_destroy(&file);
	return seen;
}

static struct seen read_whole(const uint8_t *data, size_t size)
{
	struct ldma_capfile file;
	struct seen seen = {0};
	enum ldma_capfile_step step;
	size_t pos = 0, consumed;

	ldma_capfile_init(&file);
	do {
		struct ldma_capfile_frame frame;

		step = ldma_capfile_next(&file, data + pos, size - pos, true, &frame, &consumed);
		CHECK(step != LDMA_CAPFILE_NEED && consumed <= size - pos);
		if (step == LDMA_CAPFILE_FRAME)
			see_frame(&seen, &frame);
		pos += consumed;
	} while (step < LDMA_CAPFILE_FULL);
	see_end(&seen, &file, step);
	ldma_capfile_destroy(&file);
	return seen;
}

static struct seen read_batches(const uint8_t *data, size_t size, uint32_t capacity)
{
	struct ldma_batch *batch = ldma_batch_create(capacity, 0);
	struct ldma_capfile file;
	struct seen seen = {0};
	enum ldma_capfile_step step;
	size_t pos = 0, consumed;

	CHECK(batch);
	ldma_capfile_init(&file);
	do {
		ldma_batch_reset(batch);
		step = ldma_capfile_fill(&file, batch, data + pos, size - pos, true, &consumed);
		CHECK(consumed <= size - pos);
		seen.roce += batch->count;
		seen.other += batch->other;
		pos += consumed;
	} while (step == LDMA_CAPFILE_FULL);
	see_end(&seen, &file, step);
	CHECK(seen.roce + seen.other == seen.frames);
	ldma_capfile_destroy(&file);
	ldma_batch_destroy(batch);
	return seen;
}

static void check_same(const struct seen *a, const struct seen *b)
{
	CHECK(a->last == b->last);
	CHECK(a->frames == b->frames);
	CHECK(a->offset == b->offset);
	CHECK(a->dropped == b->dropped);
	CHECK(a->contradictions == b->contradictions);
	CHECK(a->interfaces == b->interfaces);
	CHECK(!strcmp(a->error, b->error));
}

/* Byte 0: the size of the pieces and of the batches. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, pieces, batches;

	if (size < 1)
		return 0;
	whole = read_whole(data + 1, size - 1);
	pieces = read_pieces(data + 1, size - 1, data[0] % 97 + 1u);
	batches = read_batches(data + 1, size - 1, data[0] % 7 + 1u);
	check_same(&whole, &pieces);
	CHECK(whole.hash == pieces.hash);
	check_same(&whole, &batches);
	return 0;
}
