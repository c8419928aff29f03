/* A transport (call.h) in memory: the client's chunks are its buffers, and a call waits for its reply. Pieces come at once, or
 * from a thread of their own; a connection may be gone. */
#ifndef LDMA_TEST_MEMORY_TRANSPORT_H
#define LDMA_TEST_MEMORY_TRANSPORT_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "call.h"
#include "expect.h"
#include "messages.h"

struct memory_call {
	struct ldma_call call; /* first */
	uint64_t connection;
	uint32_t piece_bytes;
	bool is_later;       /* pieces come from another thread */
	uint32_t lost_after; /* pieces; 0: never */
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

struct memory_piece {
	struct ldma_piece piece; /* first */
	ldma_piece_fn done;
};

uint64_t ldma_call_connection(const struct ldma_call *call)
{
	return ((const struct memory_call *)call)->connection;
}

uint32_t ldma_call_piece_bytes(const struct ldma_call *call)
{
	return ((const struct memory_call *)call)->piece_bytes;
}

void ldma_call_stored(struct ldma_call *call, uint64_t storage_ns, uint64_t queued_ns)
{
	EXPECT(queued_ns <= storage_ns);
	__atomic_add_fetch(&call->storage_ns, storage_ns, __ATOMIC_RELAXED);
	__atomic_add_fetch(&((struct memory_call *)call)->accesses, 1, __ATOMIC_RELAXED);
}

static void *deliver(void *argument)
{
	struct memory_piece *piece = argument;

	piece->done(&piece->piece);
	return NULL;
}

static int make_piece(struct ldma_call *call, uint64_t offset, uint32_t length, bool is_pull,
		      ldma_piece_fn done, void *user)
{
	struct memory_call *self = (struct memory_call *)call;
	struct memory_piece *piece = calloc(1, sizeof(*piece));
	uint32_t number = __atomic_add_fetch(&self->pieces, 1, __ATOMIC_RELAXED);
	uint32_t open = __atomic_add_fetch(&self->pieces_open, 1, __ATOMIC_RELAXED);
	bool is_lost = self->lost_after && number > self->lost_after;
	pthread_t thread;

	EXPECT(piece && open <= LDMA_CALL_PIECES && length <= self->piece_bytes);
	if (__atomic_load_n(&self->pieces_most, __ATOMIC_RELAXED) < open)
		__atomic_store_n(&self->pieces_most, open, __ATOMIC_RELAXED);
	piece->piece =
		(struct ldma_piece){.call = call, .offset = offset, .length = length, .user = user};
	piece->done = done;
	if (is_lost) {
		piece->piece.error = is_pull ? -ECONNRESET : -ESHUTDOWN;
	} else {
		piece->piece.memory = malloc(self->piece_bytes);
		EXPECT(piece->piece.memory);
		if (is_pull)
			memcpy(piece->piece.memory, self->read_chunk + offset, length);
	}
	if (!self->is_later) {
		done(&piece->piece);
		return 0;
	}
	EXPECT(!pthread_create(&thread, NULL, deliver, piece));
	EXPECT(!pthread_detach(thread));
	return 0;
}

int ldma_call_pull(struct ldma_call *call, uint64_t offset, uint32_t length, ldma_piece_fn done,
		   void *user)
{
	EXPECT(offset + length <= call->read_length);
	return make_piece(call, offset, length, true, done, user);
}

int ldma_call_room(struct ldma_call *call, uint64_t offset, ldma_piece_fn done, void *user)
{
	return make_piece(call, offset, ((struct memory_call *)call)->piece_bytes, false, done,
			  user);
}

void ldma_piece_drop(struct ldma_piece *piece)
{
	struct memory_call *self = (struct memory_call *)piece->call;

	__atomic_sub_fetch(&self->pieces_open, 1, __ATOMIC_RELAXED);
	free(piece->memory);
	free(piece);
}

void ldma_piece_push(struct ldma_piece *piece, uint32_t length)
{
	struct memory_call *self = (struct memory_call *)piece->call;

	EXPECT(!piece->error && length <= piece->length);
	EXPECT(piece->offset + length <= self->write_chunk_bytes);
	memcpy(self->write_chunk + piece->offset, piece->memory, length);
	ldma_piece_drop(piece);
}

void ldma_call_reply(struct ldma_call *call, const void *message, uint32_t length,
		     uint64_t data_length)
{
	struct memory_call *self = (struct memory_call *)call;

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
	if (!program->take(program, &self->call)) {
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
		.call = {.message = m->bytes,
			 .length = m->length,
			 .xid = get32(m->bytes),
			 .received_ns = 1,
			 .has_write = write_chunk != NULL,
			 .write_room = write_chunk_bytes,
			 .reply_room = 4096},
		.connection = 1,
		.piece_bytes = 65536,
		.write_chunk = write_chunk,
		.write_chunk_bytes = write_chunk_bytes,
	};
}

#endif
