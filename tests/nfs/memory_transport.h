/* SPDX-License-Identifier: BSD-2-Clause */
/* A transport (call.h) in memory: the client's chunks are its buffers, and a call waits for its reply. Pieces come at once, or
 * from a thread of their own; a connection may be gone. */
#ifndef LDMA_TEST_MEMORY_TRANSPORT_H
#define LDMA_TEST_MEMORY_TRANSPORT_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "rpc/call.h"
#include "tests/base/expect.h"
#include "tests/nfs/messages.h"

struct memory_call {
	struct ldma_call call; /* first */
	bool is_later;         /* pieces come from another thread */
	uint32_t lost_after;   /* pieces; 0: never */
	const uint8_t *read_chunk;
	uint8_t *write_chunk;
	uint64_t write_chunk_bytes;
	uint32_t pieces, pieces_open, pieces_most; /* atomic */
	uint8_t reply[8192];
	uint32_t reply_length;
	uint64_t data_length;
	uint32_t accesses; /* to the store, as told; atomic */
	uint32_t replies;
	sem_t is_replied;
};

void ldma_call_stored(struct ldma_call *call, uint64_t storage_ns, uint64_t queued_ns)
{
	EXPECT(queued_ns <= storage_ns);
	__atomic_add_fetch(&call->storage_ns, storage_ns, __ATOMIC_RELAXED);
	__atomic_add_fetch(&((struct memory_call *)call)->accesses, 1, __ATOMIC_RELAXED);
}

static void *deliver(void *argument)
{
	struct ldma_piece *piece = argument;

	piece->done(piece, NULL);
	return NULL;
}

static void deliver_later(struct ldma_piece *piece)
{
	pthread_t thread;

	EXPECT(!pthread_create(&thread, NULL, deliver, piece));
	EXPECT(!pthread_detach(thread));
}

/* 0: the piece is there. -EINPROGRESS: it comes from another thread, or its connection went, which done has heard. */
static int make_piece(struct ldma_call *call, struct ldma_piece *piece, bool is_pull)
{
	struct memory_call *self = (struct memory_call *)call;
	uint32_t number = __atomic_add_fetch(&self->pieces, 1, __ATOMIC_RELAXED);
	uint32_t open = __atomic_add_fetch(&self->pieces_open, 1, __ATOMIC_RELAXED);
	bool is_lost = self->lost_after && number > self->lost_after;

	EXPECT(open <= LDMA_CALL_PIECES && piece->length <= call->piece_bytes);
	if (__atomic_load_n(&self->pieces_most, __ATOMIC_RELAXED) < open)
		__atomic_store_n(&self->pieces_most, open, __ATOMIC_RELAXED);
	piece->call = call;
	piece->memory = NULL;
	piece->error = 0;
	if (is_lost) {
		__atomic_sub_fetch(&self->pieces_open, 1, __ATOMIC_RELAXED);
		if (!is_pull && !self->is_later)
			return -ESHUTDOWN;
		piece->error = is_pull ? -ECONNRESET : -ESHUTDOWN;
	} else {
		piece->memory = malloc(call->piece_bytes);
		EXPECT(piece->memory);
		if (is_pull)
			memcpy(piece->memory, self->read_chunk + piece->offset, piece->length);
	}
	if (self->is_later)
		deliver_later(piece);
	else if (is_lost)
		piece->done(piece, NULL);
	else
		return 0;
	return -EINPROGRESS;
}

int ldma_call_pull(struct ldma_call *call, struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	(void)batch;
	EXPECT(piece->offset + piece->length <= call->read_length);
	return make_piece(call, piece, true);
}

int ldma_call_room(struct ldma_call *call, struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	(void)batch;
	return make_piece(call, piece, false);
}

void ldma_piece_drop(struct ldma_piece *piece, struct ldma_rpc_batch *batch)
{
	struct memory_call *self = (struct memory_call *)piece->call;

	(void)batch;
	EXPECT(!piece->error && piece->memory);
	__atomic_sub_fetch(&self->pieces_open, 1, __ATOMIC_RELAXED);
	free(piece->memory);
	piece->memory = NULL;
}

void ldma_piece_push(struct ldma_piece *piece, uint32_t length, struct ldma_rpc_batch *batch)
{
	struct memory_call *self = (struct memory_call *)piece->call;

	EXPECT(!piece->error && length <= piece->length);
	EXPECT(piece->offset + length <= self->write_chunk_bytes);
	memcpy(self->write_chunk + piece->offset, piece->memory, length);
	ldma_piece_drop(piece, batch);
}

void ldma_call_reply(struct ldma_call *call, const void *message, uint32_t length,
		     uint64_t data_length, struct ldma_rpc_batch *batch)
{
	struct memory_call *self = (struct memory_call *)call;

	(void)batch;
	EXPECT(!__atomic_load_n(&self->pieces_open, __ATOMIC_RELAXED));
	EXPECT(length <= sizeof(self->reply) && length <= call->reply_room);
	EXPECT(!self->replies++);
	memcpy(self->reply, message, length);
	self->reply_length = length;
	self->data_length = data_length;
	sem_post(&self->is_replied);
}

/* Shows the call; once it is taken, waits for the reply. Whether it was taken. */
static inline bool offer(struct ldma_program *program, struct memory_call *self)
{
	self->replies = self->pieces = self->pieces_open = self->pieces_most = 0;
	EXPECT(!sem_init(&self->is_replied, 0, 0));
	if (!program->take(program, &self->call, NULL)) {
		EXPECT(!self->pieces && !self->replies);
		return false;
	}
	while (sem_wait(&self->is_replied))
		EXPECT(errno == EINTR);
	sem_destroy(&self->is_replied);
	return true;
}

/* A call of that message, with a write chunk of that size unless it is NULL. */
static inline struct memory_call make_call(const struct message *m, uint8_t *write_chunk,
					   uint64_t write_chunk_bytes)
{
	return (struct memory_call){
		.call = {.connection = 1,
			 .piece_bytes = 65536,
			 .message = m->bytes,
			 .length = m->length,
			 .xid = get32(m->bytes),
			 .received_ns = 1,
			 .has_write = write_chunk != NULL,
			 .write_room = write_chunk_bytes,
			 .reply_room = 4096},
		.write_chunk = write_chunk,
		.write_chunk_bytes = write_chunk_bytes,
	};
}

#endif
