/* SPDX-License-Identifier: BSD-2-Clause */
/* rpc/rpcrdma for native_header.py, which compiles both into one library: a header's lists as plain numbers. */
#include <errno.h>
#include <stddef.h>

#include "rpc/rpcrdma.h"

struct header {
	struct ldma_rpcrdma c;
	struct ldma_rpcrdma_segment segments[LDMA_RPCRDMA_SEGMENTS];
};

size_t header_size(void)
{
	return sizeof(struct header);
}

/* 0, or enum ldma_rpcrdma_error. */
int header_decode(struct header *header, const uint8_t *data, uint32_t length, uint32_t chunks,
		  uint32_t segments, uint64_t list_bytes)
{
	struct ldma_rpcrdma_limits limits = {chunks, segments, list_bytes};
	int result = ldma_rpcrdma_decode(data, length, &limits, header->segments,
					 LDMA_RPCRDMA_SEGMENTS, &header->c);

	if (!result)
		return 0;
	return result == -EPROTONOSUPPORT ? LDMA_RPCRDMA_ERR_VERS : LDMA_RPCRDMA_ERR_CHUNK;
}

static uint64_t *chunk_numbers(const struct header *header, const struct ldma_rpcrdma_chunk *chunk,
			       uint64_t *ret)
{
	*ret++ = chunk->position;
	*ret++ = chunk->count;
	for (uint32_t i = chunk->first; i < chunk->first + chunk->count; i++) {
		*ret++ = header->segments[i].handle;
		*ret++ = header->segments[i].length;
		*ret++ = header->segments[i].offset;
	}
	return ret;
}

/* The fields, then of each chunk its position, how many segments, and their handles, lengths and offsets. */
void header_numbers(const struct header *header, uint64_t *ret)
{
	const struct ldma_rpcrdma *c = &header->c;

	*ret++ = c->xid;
	*ret++ = c->version;
	*ret++ = c->credits;
	*ret++ = c->proc;
	*ret++ = c->header_bytes;
	*ret++ = c->error;
	*ret++ = c->lowest;
	*ret++ = c->highest;
	*ret++ = c->read_count;
	*ret++ = c->write_count;
	*ret++ = c->has_reply;
	for (uint32_t i = 0; i < c->read_count; i++)
		ret = chunk_numbers(header, &c->reads[i], ret);
	for (uint32_t i = 0; i < c->write_count; i++)
		ret = chunk_numbers(header, &c->writes[i], ret);
	if (c->has_reply)
		chunk_numbers(header, &c->reply, ret);
}
