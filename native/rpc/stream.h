/* RPC over a stream (RFC 5531, 11), the client's side: records gathered and sent together, records found in what comes.
 * The socket is the caller's and does not block. */
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
	uint32_t record_most; /* of what is received */
	struct ldma_stream_buffer tx, rx;
	size_t merged,
		next; /* of the record at rx.start: bytes of whole fragments, where the next one begins */
};

/* send_bytes: how much may wait to be sent. 0, -EINVAL or -ENOMEM. */
int ldma_stream_init(struct ldma_stream *stream, int fd, size_t send_bytes, uint32_t record_most);
void ldma_stream_destroy(struct ldma_stream *stream);

/* Room for a record, which has to be filled before the next flush. NULL: not now. */
uint8_t *ldma_stream_reserve(struct ldma_stream *stream, uint32_t length);

/* Sends what it can. 0 or a negative errno. */
int ldma_stream_flush(struct ldma_stream *stream);

static inline bool ldma_stream_is_flushed(const struct ldma_stream *stream)
{
	return stream->tx.start == stream->tx.end;
}

/* Takes what has come, once; invalidates records. How many bytes, 0: none now, or a negative errno: -ECONNRESET at the
 * end of the stream. */
ptrdiff_t ldma_stream_receive(struct ldma_stream *stream);

/* The next whole record. 1, 0: none, or -EPROTO: it is too long. */
int ldma_stream_next(struct ldma_stream *stream, const uint8_t **ret, uint32_t *ret_length);

#endif
