/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/tap_reader.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/gather.h"
#include "bpf/wall_clock.h"

#define ANSWER_MS 2000 /* the time a device has to reply, and to end a tap */
#define RELEASE_BYTES (32u << 10)

struct ldma_tap_reader {
	struct ldma_address address;
	struct ldma_tap_request request;
	struct ldma_tap_memory memory;
	int memory_fd;
	int waiting_fd; /* where a device finds this reader */
	int fd;         /* the connection; -1: not attached, or gone */
	uint64_t at;    /* the next record */
	uint64_t end;   /* of the records, once the tap is gone */
	bool is_gone;
	int64_t wall_offset_ns;
	int64_t drained_ns; /* when the ring was last emptied; 0: it was left with something in it */
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int ldma_tap_reader_open(const struct ldma_tap_options *options, struct ldma_tap_reader **ret)
{
	struct ldma_tap_reader *reader = calloc(1, sizeof(*reader));
	int error;

	if (!reader)
		return -ENOMEM;
	reader->address = options->address;
	reader->request = (struct ldma_tap_request){
		.version = LDMA_TAP_VERSION,
		.directions = (options->rx ? 1u << LDMA_RECORD_RX : 0) |
			      (options->tx ? 1u << LDMA_RECORD_TX : 0),
		.ring_bytes = options->ring_bytes ? options->ring_bytes : LDMA_TAP_RING_BYTES,
		.config = options->config,
	};
	reader->waiting_fd = reader->fd = -1;
	reader->wall_offset_ns = ldma_wall_offset_ns();
	reader->memory_fd = ldma_tap_memory_create(reader->request.ring_bytes);
	error = reader->memory_fd;
	if (error >= 0)
		error = ldma_tap_memory_map(reader->memory_fd, reader->request.ring_bytes,
					    &reader->memory);
	if (error) {
		ldma_tap_reader_close(reader);
		return error;
	}
	*ret = reader;
	return 0;
}

void ldma_tap_reader_close(struct ldma_tap_reader *reader)
{
	if (!reader)
		return;
	close_fd(&reader->fd);
	close_fd(&reader->waiting_fd);
	close_fd(&reader->memory_fd);
	ldma_tap_memory_unmap(&reader->memory);
	free(reader);
}

/* Returns whether this user may read the device at the other end. Root may read any; others may read their own, and
 * root's if it agrees. */
static bool is_trusted(int fd)
{
	uid_t peer = ldma_tap_peer(fd), self = geteuid();

	return !self || peer == self || peer == 0;
}

static bool can_read(int fd, int timeout_ms)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	return poll(&ready, 1, timeout_ms) > 0;
}

/* Accepts a connection of a device that found this reader, and returns it. Connections of other users are closed. */
static int let_in(struct ldma_tap_reader *reader)
{
	int fd = accept4(reader->waiting_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 && is_trusted(fd))
		return fd;
	if (fd >= 0)
		close(fd);
	return -ECONNREFUSED;
}

/* Listens at a free one of the names at which devices look. */
static void start_waiting(struct ldma_tap_reader *reader)
{
	for (int i = 0; i < LDMA_TAPS && reader->waiting_fd < 0; i++)
		reader->waiting_fd = ldma_tap_listen(&reader->address, i);
}

/* Connects to the device; if there is none, waits, and tries again: a device that has just opened may not have seen
 * this reader wait. */
static int meet(struct ldma_tap_reader *reader, int timeout_ms)
{
	int fd = ldma_tap_connect(&reader->address, LDMA_TAP_DEVICE);

	if (fd == -ECONNREFUSED && reader->waiting_fd < 0) {
		start_waiting(reader);
		fd = ldma_tap_connect(&reader->address, LDMA_TAP_DEVICE);
	}
	if (fd >= 0 && !is_trusted(fd)) {
		close(fd);
		return -EACCES;
	}
	if (fd == -EAGAIN) /* the device's queue of connections is full */
		return -EBUSY;
	if (fd == -ECONNREFUSED && can_read(reader->waiting_fd, timeout_ms))
		fd = let_in(reader);
	return fd;
}

static int ask(struct ldma_tap_reader *reader)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec iov = {&reader->request, sizeof(reader->request)};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(sizeof(int)),
	};
	struct ldma_tap_reply reply;
	ssize_t length;

	control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
					 .cmsg_level = SOL_SOCKET,
					 .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.align), &reader->memory_fd, sizeof(int));
	if (sendmsg(reader->fd, &message, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return -errno;
	if (!can_read(reader->fd, ANSWER_MS))
		return -ETIMEDOUT;
	length = recv(reader->fd, &reply, sizeof(reply), MSG_DONTWAIT);
	/* A device that refuses replies and hangs up without reading the request. The reset comes first; the reply is
	 * behind it. */
	if (length < 0 && errno == ECONNRESET)
		length = recv(reader->fd, &reply, sizeof(reply), MSG_DONTWAIT);
	if (length <= 0)
		return -ECONNREFUSED;
	if (length != sizeof(reply) || reply.error > 0)
		return -EPROTO;
	return reply.error;
}

int ldma_tap_reader_connect(struct ldma_tap_reader *reader, int timeout_ms)
{
	int error;

	reader->fd = meet(reader, timeout_ms);
	error = reader->fd < 0 ? reader->fd : ask(reader);
	if (error)
		close_fd(&reader->fd);
	if (error == -ECONNREFUSED)
		return 0;
	close_fd(&reader->waiting_fd);
	return error ? error : 1;
}

static uint64_t producer(const struct ldma_tap_reader *reader)
{
	return __atomic_load_n(&reader->memory.shared->producer, __ATOMIC_ACQUIRE);
}

static void end(struct ldma_tap_reader *reader)
{
	close_fd(&reader->fd);
	if (!reader->is_gone)
		reader->end = producer(reader);
	reader->is_gone = true;
}

/* Takes a message of the device: a call to wake up, or the end of the connection. */
static void hear(struct ldma_tap_reader *reader)
{
	struct ldma_tap_reply reply;
	ssize_t length;

	do
		length = recv(reader->fd, &reply, sizeof(reply), MSG_DONTWAIT);
	while (length > 0);
	if (length == 0 || (errno != EAGAIN && errno != EINTR))
		end(reader);
}

void ldma_tap_reader_detach(struct ldma_tap_reader *reader)
{
	int64_t end_ns = ldma_clock_ns(CLOCK_MONOTONIC) + ANSWER_MS * 1000000LL;

	if (reader->fd >= 0)
		shutdown(reader->fd, SHUT_WR);
	while (reader->fd >= 0 && ldma_clock_ns(CLOCK_MONOTONIC) < end_ns)
		if (can_read(reader->fd, 10))
			hear(reader);
	end(reader);
}

static bool batch_is_full(const struct ldma_tap_reader *reader, const struct ldma_batch *batch)
{
	return batch->count == batch->capacity ||
	       batch->bytes_size - batch->bytes_used < reader->request.config.snaplen;
}

static void release(struct ldma_tap_reader *reader)
{
	__atomic_store_n(&reader->memory.shared->consumer, reader->at, __ATOMIC_RELEASE);
}

/* Reads each field once: the device may change them meanwhile. */
static int drain(struct ldma_tap_reader *reader, struct ldma_batch *batch)
{
	uint64_t last = reader->is_gone ? reader->end : producer(reader), released = reader->at;
	uint64_t ring_bytes = reader->memory.ring_bytes;
	uint32_t before = batch->count;

	if (last - reader->at > ring_bytes)
		return -EBADMSG;
	while (reader->at != last) {
		const uint8_t *at = reader->memory.ring + (reader->at & (ring_bytes - 1));
		struct ldma_record record;

		memcpy(&record, at, sizeof(record));
		if (record.captured > reader->request.config.snaplen ||
		    record.captured > record.length ||
		    ldma_tap_slot_bytes(record.captured) > last - reader->at)
			return -EBADMSG;
		if (!ldma_batch_add_copy(
			    batch, LDMA_LINK_RAW, record.time_ns + (uint64_t)reader->wall_offset_ns,
			    record.direction, at + sizeof(record), record.captured, record.length))
			break;
		reader->at += ldma_tap_slot_bytes(record.captured);
		if (reader->at - released >= RELEASE_BYTES) {
			release(reader);
			released = reader->at;
		}
	}
	release(reader);
	return (int)(batch->count - before);
}

int ldma_tap_reader_poll(struct ldma_tap_reader *reader, struct ldma_batch *batch, int timeout_ms)
{
	uint32_t *sleeps = &reader->memory.shared->sleeps;
	int64_t now_ns = ldma_clock_ns(CLOCK_MONOTONIC);
	int64_t deadline_ns = now_ns + timeout_ms * 1000000LL, left_ns;
	struct pollfd heard = {.fd = reader->fd, .events = POLLIN};
	int added, ready, slice_ms = 1;

	if (batch_is_full(reader, batch))
		return -ENOBUFS;
	if (timeout_ms > 0 && !reader->is_gone)
		ldma_let_gather(reader->drained_ns, reader->memory.ring_bytes, now_ns);
	while (!(added = drain(reader, batch)) && !reader->is_gone) {
		left_ns = deadline_ns - ldma_clock_ns(CLOCK_MONOTONIC);
		if (left_ns <= 0)
			break;
		/* The device does not wake a reader for a few packets: look again after a while, less often the quieter
		 * it is. */
		if (left_ns < slice_ms * 1000000LL)
			slice_ms = (int)((left_ns + 999999) / 1000000);
		__atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
		ready = poll(&heard, 1, slice_ms);
		__atomic_store_n(sleeps, 0, __ATOMIC_SEQ_CST);
		if (ready < 0) /* a signal */
			break;
		if (ready)
			hear(reader);
		slice_ms = slice_ms < 16 ? slice_ms * 2 : 16;
	}
	reader->drained_ns = batch_is_full(reader, batch) ? 0 : ldma_clock_ns(CLOCK_MONOTONIC);
	return added;
}

bool ldma_tap_reader_is_gone(const struct ldma_tap_reader *reader)
{
	return reader->is_gone;
}

struct ldma_capture_counters ldma_tap_reader_counters(const struct ldma_tap_reader *reader)
{
	return reader->memory.shared->counters;
}
