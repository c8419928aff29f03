/* SPDX-License-Identifier: BSD-2-Clause */
/* Decodes any bytes as a header of RPC-over-RDMA; what is good must survive being encoded and decoded again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "rpc/rpcrdma.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct ldma_rpcrdma_limits limits = {
	.chunks = LDMA_RPCRDMA_CHUNKS, .segments = LDMA_RPCRDMA_SEGMENTS, .list_bytes = 1 << 24};

static uint64_t chunk_bytes(const struct ldma_rpcrdma *header,
			    const struct ldma_rpcrdma_chunk *chunk)
{
	uint64_t bytes = 0;

	CHECK(chunk->first <= header->segment_count);
	CHECK(chunk->count <= header->segment_count - chunk->first);
	for (uint32_t i = 0; i < chunk->count; i++)
		bytes += header->segments[chunk->first + i].length;
	return bytes;
}

static void check_chunks(const struct ldma_rpcrdma *header)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < header->read_count; i++) {
		const struct ldma_rpcrdma_chunk *read = &header->reads[i];

		CHECK(read->count && read->length == chunk_bytes(header, read));
		CHECK(read->position % 4 == 0 && read->position >= end);
		CHECK(!i || read->position);
		end = read->position ? read->position + read->length : 0;
	}
	for (uint32_t i = 0; i < header->write_count; i++)
		CHECK(header->writes[i].length == chunk_bytes(header, &header->writes[i]));
	if (header->has_reply)
		CHECK(header->reply.length == chunk_bytes(header, &header->reply));
}

static void check_again(const struct ldma_rpcrdma *header, const uint8_t *data, uint32_t size)
{
	uint32_t bytes = ldma_rpcrdma_bytes(header), left = size - header->header_bytes;
	struct ldma_rpcrdma_segment *segments =
		malloc((header->segment_count + 1) * sizeof(*segments));
	uint8_t *buf = malloc(bytes + left);
	struct ldma_rpcrdma again;

	CHECK(bytes == header->header_bytes);
	ldma_rpcrdma_encode(header, buf);
	memcpy(buf + bytes, data + bytes, left);
	CHECK(!ldma_rpcrdma_decode(buf, size, &limits, segments, header->segment_count, &again));
	CHECK(again.segment_count == header->segment_count);
	CHECK(!memcmp(segments, header->segments, header->segment_count * sizeof(*segments)));
	free(segments);
	free(buf);
}

/* Its reply has the same chunks, and as much room as was offered. */
static void check_reply(const struct ldma_rpcrdma *call)
{
	bool is_long = call->has_reply && call->reply.count;
	uint32_t bytes = ldma_rpcrdma_reply_bytes(call, is_long);
	uint64_t data = call->write_count ? call->writes[0].length / 2 : 0;
	struct ldma_rpcrdma_segment segments[LDMA_RPCRDMA_SEGMENTS];
	uint8_t *buf = malloc(bytes + 4);
	struct ldma_rpcrdma reply;

	ldma_rpcrdma_encode_reply(call, 1, data, is_long, is_long ? call->reply.length / 2 : 0,
				  buf);
	memcpy(buf + bytes, buf, 4);
	CHECK(!ldma_rpcrdma_decode(buf, bytes + (is_long ? 0 : 4), &limits, segments,
				   LDMA_RPCRDMA_SEGMENTS, &reply));
	CHECK(reply.write_count == call->write_count);
	CHECK(!reply.write_count || reply.writes[0].length == data);
	CHECK(!is_long || reply.reply.length == call->reply.length / 2);
	free(buf);
}

static void check_error(const uint8_t *data, uint32_t size, int error)
{
	uint8_t buf[LDMA_RPCRDMA_ERROR_BYTES];
	struct ldma_rpcrdma answer;
	uint32_t length;

	CHECK(error == -EPROTO || error == -EPROTONOSUPPORT);
	if (!ldma_rpcrdma_is_answered(data, size))
		return;
	length = ldma_rpcrdma_encode_error(
		data, 1, error == -EPROTO ? LDMA_RPCRDMA_ERR_CHUNK : LDMA_RPCRDMA_ERR_VERS, buf);
	CHECK(!ldma_rpcrdma_decode(buf, length, &limits, NULL, 0, &answer));
	CHECK(answer.proc == LDMA_RPCRDMA_ERROR);
	CHECK(!ldma_rpcrdma_is_answered(buf, length));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct ldma_rpcrdma header = {0};
	struct ldma_rpcrdma_segment *segments;
	uint32_t room = 2;
	uint8_t *data;
	int result;

	if (size > 0x20000)
		return 0;
	data = malloc(size ? size : 1); /* exactly, so that a byte too far is seen */
	memcpy(data, input, size);
	segments = malloc(room * sizeof(*segments));
	result = ldma_rpcrdma_decode(data, (uint32_t)size, &limits, segments, room, &header);
	if (result == -ENOSPC) {
		room = header.segment_count;
		CHECK(room > 2 && room <= LDMA_RPCRDMA_SEGMENTS);
		free(segments);
		segments = malloc(room * sizeof(*segments));
		result =
			ldma_rpcrdma_decode(data, (uint32_t)size, &limits, segments, room, &header);
	}
	if (result) {
		check_error(data, (uint32_t)size, result);
	} else {
		CHECK(header.header_bytes <= size);
		if (header.proc <= LDMA_RPCRDMA_NOMSG) {
			check_chunks(&header);
			check_again(&header, data, (uint32_t)size);
			check_reply(&header);
		}
	}
	free(segments);
	free(data);
	return 0;
}
