/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bytes.h"

#define MARK 4
#define LAST UINT32_C(0x80000000)
#define RECORDS 4 /* the longest records that can come at once */

static int buffer_init(struct ldma_stream_buffer *buffer, size_t size)
{
	*buffer = (struct ldma_stream_buffer){.memory = malloc(size), .size = size};
	return buffer->memory ? 0 : -ENOMEM;
}

int ldma_stream_init(struct ldma_stream *stream, int fd, size_t send_bytes, uint32_t record_most)
{
	*stream = (struct ldma_stream){.fd = fd, .record_most = record_most};
	if (!send_bytes || !record_most || record_most >= LAST)
		return -EINVAL;
	if (buffer_init(&stream->tx, send_bytes) ||
	    buffer_init(&stream->rx, RECORDS * ((size_t)record_most + MARK))) {
		ldma_stream_destroy(stream);
		return -ENOMEM;
	}
	return 0;
}

void ldma_stream_destroy(struct ldma_stream *stream)
{
	free(stream->tx.memory);
	free(stream->rx.memory);
	stream->tx.memory = stream->rx.memory = NULL;
}

/* Moves the bytes that are left to the front. */
static void compact(struct ldma_stream_buffer *buffer)
{
	size_t length = buffer->end - buffer->start;

	if (!buffer->start)
		return;
	memmove(buffer->memory, buffer->memory + buffer->start, length);
	buffer->start = 0;
	buffer->end = length;
}

uint8_t *ldma_stream_reserve(struct ldma_stream *stream, uint32_t length)
{
	struct ldma_stream_buffer *tx = &stream->tx;
	uint8_t *at;

	if (tx->size - tx->end < (size_t)length + MARK && tx->end - tx->start < tx->size / 4)
		compact(tx);
	if (tx->size - tx->end < (size_t)length + MARK)
		return NULL;
	at = tx->memory + tx->end;
	put32(at, LAST | length);
	tx->end += MARK + (size_t)length;
	return at + MARK;
}

int ldma_stream_flush(struct ldma_stream *stream)
{
	struct ldma_stream_buffer *tx = &stream->tx;

	while (tx->start < tx->end) {
		ssize_t sent = send(stream->fd, tx->memory + tx->start, tx->end - tx->start,
				    MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		tx->start += (size_t)sent;
	}
	tx->start = tx->end = 0;
	return 0;
}

ptrdiff_t ldma_stream_receive(struct ldma_stream *stream)
{
	struct ldma_stream_buffer *rx = &stream->rx;
	ssize_t got;

	if (rx->start) {
		stream->next -= rx->start;
		compact(rx);
	}
	do
		got = recv(stream->fd, rx->memory + rx->end, rx->size - rx->end, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	if (!got)
		return -ECONNRESET;
	rx->end += (size_t)got;
	return got;
}

int ldma_stream_next(struct ldma_stream *stream, const uint8_t **ret, uint32_t *ret_length)
{
	struct ldma_stream_buffer *rx = &stream->rx;

	while (rx->end - stream->next >= MARK) {
		uint8_t *at = rx->memory + stream->next, *record = rx->memory + rx->start;
		uint32_t mark = get32(at), length = mark & ~LAST;

		if (length > stream->record_most - stream->merged || (!length && mark != LAST))
			return -EPROTO;
		if (rx->end - stream->next - MARK < length)
			return 0;
		/* Fragments are moved together; a single one stays where it is. */
		if (!stream->merged && mark & LAST)
			record = at + MARK;
		else
			memmove(record + stream->merged, at + MARK, length);
		stream->merged += length;
		stream->next += MARK + (size_t)length;
		if (mark & LAST) {
			*ret = record;
			*ret_length = (uint32_t)stream->merged;
			rx->start = stream->next;
			stream->merged = 0;
			return 1;
		}
	}
	return 0;
}
