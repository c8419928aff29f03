/* Between a transport and those who serve calls: what a call is, where its data is moved, how it ends.
 *
 * The transport (endpoint.h) has received a call and shows it to the program. The program takes it, or leaves it to the
 * slow path, which gathers the whole message and hands it to other threads. Data never lies in the message: it is pulled
 * from the client's read chunk and pushed to its write chunk, a piece at a time, through buffers of the connection's
 * window. A call that finds no buffer waits for its turn; one buffer is enough for it to go on.
 *
 * A program may be called by any thread of the transport and must not block there; it may call everything here from any
 * thread. Whatever becomes of the connection, every call that was taken is ended by one ldma_call_reply and every piece
 * by one ldma_piece_push or ldma_piece_drop. */
#ifndef LDMA_CALL_H
#define LDMA_CALL_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_CALL_PIECES 16 /* that one call has at a time, at most */

struct ldma_endpoint;
struct ldma_piece;

/* A buffer with data, or for data. error: of a pull, -ECONNRESET; of both, -ESHUTDOWN: the buffer will not come. */
typedef void (*ldma_piece_fn)(struct ldma_piece *piece);

struct ldma_piece {
	struct ldma_call *call;
	uint8_t *memory;
	uint32_t length; /* of a pull, that many bytes; of room, what the buffer holds */
	uint64_t offset; /* what was asked for */
	int error;       /* then memory is NULL */
	void *user;      /* the program's */
};

struct ldma_call {
	struct ldma_endpoint *endpoint;
	const uint8_t *message; /* the RPC message from its XID on, as far as it came inline */
	uint32_t length;
	uint32_t xid;
	uint64_t received_ns;
	/* The one read chunk besides the message, or none (read_length 0): it belongs at read_position of the message,
	 * which is an offset from the XID and a multiple of four. */
	uint32_t read_position;
	uint64_t read_length;
	/* The first write chunk: what it can take; has_write: there is one, if of no bytes. */
	bool has_write;
	uint64_t write_room;
	uint32_t reply_room; /* bytes of a message that can be sent back, inline or by a chunk */
	uint64_t waited_ns;  /* for buffers, so far */
	uint64_t storage_ns; /* in the store, so far, by all its pieces together */
	uint64_t read_bytes, written_bytes; /* of files; the program's to say before the reply */
	void *user;                         /* the program's */
};

/* Who serves calls. take: true if the program takes it; false leaves it, with nothing done. */
struct ldma_program {
	bool (*take)(struct ldma_program *program, struct ldma_call *call);
};

/* The number of the connection, unique in the process. */
uint64_t ldma_call_connection(const struct ldma_call *call);

/* Bytes of a data buffer: the longest piece. */
uint32_t ldma_call_piece_bytes(const struct ldma_call *call);

/* Asks for bytes of the read chunk: done is called once they are there, perhaps at once. 0; -EAGAIN: the call has as
 * many pieces as it may; -EINVAL: beyond the chunk, or longer than a piece; -ENOMEM. */
int ldma_call_pull(struct ldma_call *call, uint64_t offset, uint32_t length, ldma_piece_fn done,
		   void *user);

/* Asks for a buffer that the program fills and pushes. As above. */
int ldma_call_room(struct ldma_call *call, uint64_t offset, ldma_piece_fn done, void *user);

/* Sends length bytes of the piece to the write chunk at piece->offset. The piece is over. */
void ldma_piece_push(struct ldma_piece *piece, uint32_t length);

/* The piece is over. */
void ldma_piece_drop(struct ldma_piece *piece);

/* One access to the store for the call is over. queued_ns: of its time, until the store began with it. */
void ldma_call_stored(struct ldma_call *call, uint64_t storage_ns, uint64_t queued_ns);

/* Ends the call: message is the RPC reply, less data_length bytes of data that were pushed (and the padding behind
 * them). All pieces are over. Copies what it needs. */
void ldma_call_reply(struct ldma_call *call, const void *message, uint32_t length,
		     uint64_t data_length);

#endif
