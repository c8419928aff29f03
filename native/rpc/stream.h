/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's side of RPC over a stream (RFC 5531, 11): it gathers records and sends them together, and finds records
 * in what comes. The socket is the caller's and does not block. */
#ifndef LDMA_STREAM_H
#define LDMA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ldma_stream_buffer {
	uint8_t *memory;
	size_t size, start, end;
};

struct ldma_stream {
	int fd;
	uint32_t record_most; /* the longest record that is received */
	struct ldma_stream_buffer tx, rx;
	size_t merged,
		next; /* of the record at rx.start: bytes of whole fragments, where the next one begins */
};

/* Makes a stream. send_bytes: the most that may wait to be sent. Returns 0, -EINVAL or -ENOMEM. */
int ldma_stream_init(struct ldma_stream *stream, int fd, size_t send_bytes, uint32_t record_most);
void ldma_stream_destroy(struct ldma_stream *stream);

/* Returns room for a record, which has to be filled before the next flush. NULL: there is none now. */
uint8_t *ldma_stream_reserve(struct ldma_stream *stream, uint32_t length);

/* Sends what the socket takes. Returns 0 or a negative errno. */
int ldma_stream_flush(struct ldma_stream *stream);

static inline bool ldma_stream_is_flushed(const struct ldma_stream *stream)
{
	return stream->tx.start == stream->tx.end;
}

/* Reads once from the socket; invalidates records. Returns how many bytes came, 0: none now, or a negative errno:
 * -ECONNRESET at the end of the stream. */
ptrdiff_t ldma_stream_receive(struct ldma_stream *stream);

/* Finds the next whole record. Returns 1, 0: there is none, or -EPROTO: it is too long. */
int ldma_stream_next(struct ldma_stream *stream, const uint8_t **ret, uint32_t *ret_length);

#endif
