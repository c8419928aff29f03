/* SPDX-License-Identifier: BSD-2-Clause */
/* The interface between a transport and the program that serves its calls: what a call is, how its data is moved, how
 * it ends.
 *
 * The transport (endpoint.h) has received a call and shows it to the program. The program takes it, or leaves it to the
 * slow path, which gathers the whole message and hands it to other threads. Data never lies in the message: it is
 * pulled from the client's read chunk and pushed to its write chunk, a piece at a time, through buffers of the
 * connection's window. A piece that finds no buffer waits for its turn; a call that has one piece can go on.
 *
 * Any thread of the transport may call a program, which must not block there; the program may call everything here from
 * any thread. A thread that takes completions has a batch: it posts what they lead to together. It gives the batch to
 * the functions of a program that it calls, and these pass it on to each function here that takes one. What another
 * thread asks for, with NULL, is posted at once. A batch may not be used after the function has returned.
 *
 * Whatever becomes of the connection, the program ends every call that it took by one ldma_call_reply, and every piece
 * that came without an error by one ldma_piece_push or ldma_piece_drop. */
#ifndef LDMA_CALL_H
#define LDMA_CALL_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_CALL_PIECES 16 /* the most pieces that one call has at a time */

struct ldma_rpc_batch;
struct ldma_endpoint;
struct ldma_piece;

typedef void (*ldma_piece_fn)(struct ldma_piece *piece, struct ldma_rpc_batch *batch);

/* Data of a call in one buffer. The program owns the struct, and may use it again once it has pushed or dropped it. */
struct ldma_piece {
	/* Set by the program before it asks. */
	uint64_t offset; /* in the chunk */
	uint32_t
		length; /* of a pull, the bytes that are wanted; of room, the most that are pushed */
	ldma_piece_fn done;
	/* Set by the transport. */
	int error;       /* for done: the piece is over, and has no memory */
	uint8_t *memory; /* the buffer */
	struct ldma_call *call;
	void *transport; /* for the transport only */
};

struct ldma_call {
	struct ldma_endpoint *endpoint;
	uint64_t connection;    /* its number, unique in the process */
	uint32_t piece_bytes;   /* of a data buffer: the longest piece */
	const uint8_t *message; /* the RPC message from its XID on, as far as it came inline */
	uint32_t length;
	uint32_t xid;
	uint64_t received_ns;
	/* The one read chunk besides the message, or none (read_length 0): it belongs at read_position of the message,
	 * which is an offset from the XID and a multiple of four. */
	uint32_t read_position;
	uint64_t read_length;
	/* The first write chunk: what it can take; has_write: there is one, perhaps of no bytes. */
	bool has_write;
	uint64_t write_room;
	uint32_t reply_room; /* bytes of a message that can be sent back, inline or by a chunk */
	uint64_t waited_ns;  /* for buffers, so far */
	uint64_t storage_ns; /* in the store, so far, by all its pieces together */
	uint64_t read_bytes, written_bytes; /* of files; the program sets them before the reply */
	void *user;                         /* for the program only */
};

/* Serves calls. take returns true if it has taken the call, and false if it leaves it with nothing done. is_control
 * returns whether a whole message that it left is control traffic, which moves no data of files and is short work; NULL:
 * none is. */
struct ldma_program {
	bool (*take)(struct ldma_program *program, struct ldma_call *call,
		     struct ldma_rpc_batch *batch);
	bool (*is_control)(const uint8_t *message, uint64_t length);
};

/* Asks for bytes of the read chunk. 0: they are there, and done is not called. -EINPROGRESS: done is called once, by
 * any thread, perhaps before this returns; its error is 0, -ECONNRESET or -ESHUTDOWN. -ESHUTDOWN: the connection is
 * over; -EAGAIN: the call has as many pieces as it may; -EINVAL: beyond the chunk, or longer than a piece; -ENOMEM. The
 * call must not be ended before this has returned. */
int ldma_call_pull(struct ldma_call *call, struct ldma_piece *piece, struct ldma_rpc_batch *batch);

/* Asks for a buffer that the program fills and pushes. Returns as ldma_call_pull does. */
int ldma_call_room(struct ldma_call *call, struct ldma_piece *piece, struct ldma_rpc_batch *batch);

/* Sends length bytes of the piece to the write chunk at piece->offset. The piece is over. */
void ldma_piece_push(struct ldma_piece *piece, uint32_t length, struct ldma_rpc_batch *batch);

/* The piece is over. */
void ldma_piece_drop(struct ldma_piece *piece, struct ldma_rpc_batch *batch);

/* Counts an access to the store for the call, which is over. queued_ns: the part of its time before the store began. */
void ldma_call_stored(struct ldma_call *call, uint64_t storage_ns, uint64_t queued_ns);

/* Ends the call: message is the RPC reply, without the data_length bytes of data that were pushed (and the padding
 * behind them). All pieces are over. It copies what it needs. */
void ldma_call_reply(struct ldma_call *call, const void *message, uint32_t length,
		     uint64_t data_length, struct ldma_rpc_batch *batch);

#endif
