/* SPDX-License-Identifier: BSD-2-Clause */
/* The declarations that the files of the endpoint and its service share.
 *
 * Locks: the device's (ldma_port_lock) may be held when an endpoint's is taken, never the other way round. While either
 * is held, no buffer goes back to a pool and no function of a program is called. */
#ifndef LDMA_ENDPOINT_INTERNAL_H
#define LDMA_ENDPOINT_INTERNAL_H

#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "base/lock.h"
#include "base/monotonic.h"
#include "rpc/endpoint.h"
#include "rpc/server.h"
#include "rpc/slow_queue.h"

#define FEW_SEGMENTS 8    /* segments of a call that need no memory of their own */
#define TRANSFER_PIECES 2 /* pieces that are under way at a time */
#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* The low bits of a work request's ID say what the rest points to. */
enum tag {
	TAG_RECEIVE, /* a call, which is still to come */
	TAG_SEND,    /* a call */
	TAG_PIECE,
	TAG_NOTHING, /* an endpoint: it only needs to know if the request failed */
	TAG_MASK = 7,
};

/* An item to be posted, in the endpoint's order: a piece, or the reply of a call. */
struct posting {
	struct posting *next;
	uint64_t
		stalled_ns; /* since when the send queue has had no room for it; 0: it has had room */
	bool is_reply;
};

struct call;

/* A data buffer of a call: a piece of the program asks for it, then its data moves from or to the peer. */
struct piece {
	struct ldma_piece *shown; /* the program's piece, until that is pushed */
	struct posting posting;
	struct ldma_pool_waiter waiter;
	struct ldma_pool_buffer buffer; /* handle 0: none */
	struct call *call;
	const struct ldma_rpcrdma_chunk *chunk;
	uint64_t offset; /* in the chunk */
	uint32_t length;
	uint32_t posted;                /* bytes of it */
	uint32_t segment, segment_used; /* of the chunk: where the next byte goes */
	bool is_pull;
	struct piece *next,
		*previous; /* in the list of those that wait, complete with the reply, were posted as one or are free */
};

/* Data that moves between memory of the process and a chunk, a piece at a time. */
struct transfer {
	const struct ldma_rpcrdma_chunk *chunk;
	uint8_t *memory;
	uint64_t from; /* in the chunk */
	uint64_t length, asked;
	uint32_t under_way;   /* pieces, and threads that ask for more */
	uint32_t free_pieces; /* bits */
	struct ldma_piece pieces[TRANSFER_PIECES];
	bool is_pull;
	int error; /* the first one */
	void (*complete)(struct call *call, int error, struct ldma_rpc_batch *batch);
};

/* A range of a whole message that is fetched. */
struct fetch {
	const struct ldma_rpcrdma_chunk *chunk;
	uint64_t from, length;
	uint8_t *to;
};

/* A Receive, then its call, then the reply. */
struct call {
	struct ldma_call shown;
	struct posting posting; /* the reply's SEND */
	struct ldma_pool_buffer buffer;
	struct ldma_rpcrdma header;
	struct ldma_rpcrdma_segment few[FEW_SEGMENTS];
	uint32_t pieces;      /* those that the program has, or waits for */
	uint32_t reply_bytes; /* of the header of a reply that goes inline */
	uint32_t send_bytes, invalidated;
	bool is_taken;                         /* by the program */
	bool is_replying, is_sending, is_sent; /* the reply is queued; posted; has arrived */
	bool has_memory;            /* the slow path's, or for a long reply: slow_forget frees it */
	bool is_overfull;           /* more was pushed than the chunk takes */
	struct piece *reply_pieces; /* WRITEs that complete with the reply */
	uint64_t sent_ns;

	/* For the slow path only. */
	uint8_t *whole;
	uint64_t whole_bytes;
	struct fetch *fetches;
	uint32_t fetch_count, fetched;
	uint8_t *answer, *data;
	uint64_t answer_bytes, data_bytes;
	struct transfer transfer;
	struct call *
		next; /* in the list of those that are free, to be posted, sent, gathered or queued */
};

struct block {
	struct block *next;
};

struct ldma_endpoint {
	struct ldma_endpoint_config config;
	struct ldma_service *service;
	uint32_t refs;
	struct ldma_lock lock;
	bool is_broken, is_ending, is_drained,
		is_over; /* is_ending: what was left is being ended */
	bool is_awaiting_receive;
	bool is_draining; /* no further call is taken */
	uint64_t replied_ns;
	uint32_t target, to_post_count, call_count;
	uint32_t unsignaled; /* work requests in a row without a completion */
	struct call *free_calls;
	struct piece *free_pieces, *waiting;
	struct block *blocks;
	struct call_list to_post, sending, to_gather;
	struct posting *first_posting, *last_posting;
	struct posting
		*last_transfer; /* the next one goes behind it, before replies of this batch */
	struct ldma_pool_waiter receive_waiter;
	struct ldma_endpoint_stats stats;

	/* For the service only. */
	struct ldma_endpoint *next, *next_ended, *next_dirty;
	struct slow_place slow[SLOW_LANES];
	bool is_dirty, is_breaking;
	uint32_t
		drained_at; /* if is_breaking: the place in the completion queue of its last completion */
};

/* The completions that the service's thread handles in a row, and what they have led to that is not posted yet. */
struct ldma_rpc_batch {
	struct ldma_service *service;
	uint64_t now_ns; /* when they were taken */
	struct ldma_endpoint *dirty;
	uint64_t unposted_bytes; /* of data */
};

struct ldma_service {
	struct ldma_service_config config;
	pthread_t thread;
	uint64_t looked_ns;
	struct ldma_program *program;
	struct ldma_service_stats stats;
	bool is_stopping;

	pthread_mutex_t mutex; /* guards what is below */
	pthread_cond_t has_call, has_control, has_ended;
	struct slow_queue slow;
	struct ldma_endpoint *endpoints, *first_ended, *last_ended;
	uint32_t breaking;
	uint64_t completions; /* those that the endpoints may have together */
};

static inline struct call *call_of(const struct ldma_call *shown)
{
	return CONTAINER(shown, struct call, shown);
}

static inline void list_append(struct call_list *list, struct call *call)
{
	call->next = NULL;
	if (list->first)
		list->last->next = call;
	else
		list->first = call;
	list->last = call;
}

static inline struct call *list_take(struct call_list *list)
{
	struct call *call = list->first;

	if (call)
		list->first = call->next;
	return call;
}

/* endpoint.c */

void endpoint_get(struct ldma_endpoint *endpoint);

/* Ends the connection: nothing more is posted, and what was posted will complete as flushed. */
void endpoint_break(struct ldma_endpoint *endpoint, struct ldma_rpc_batch *batch);

/* Notes that all that was posted has completed. */
void endpoint_drained(struct ldma_endpoint *endpoint);

/* Tells the service once nothing of the endpoint is left. */
void endpoint_check_over(struct ldma_endpoint *endpoint);

/* Handles a completion of a batch. */
void endpoint_complete(const struct ldma_wc *wc, struct ldma_rpc_batch *batch);

/* outbox.c */

/* Prepares Receives up to the credits and some to spare, and returns the credits that a reply may grant. The endpoint is
 * locked. */
uint32_t credits_top_up(struct ldma_endpoint *endpoint);

/* Is called by the pool, with a batch or NULL. */
void credits_receive_buffer(struct ldma_pool_waiter *waiter, void *batch);

/* Ends a Receive without a call. */
void receive_end(struct call *call, struct ldma_rpc_batch *batch);

/* Queues a piece or a reply to be posted. The endpoint is locked. */
void outbox_append(struct ldma_endpoint *endpoint, struct posting *posting, bool is_reply);

/* Posts what is queued: now, or with a batch at its end. data_bytes: the data for the peer that was added. */
void outbox_submit(struct ldma_endpoint *endpoint, uint32_t data_bytes,
		   struct ldma_rpc_batch *batch);

/* Posts what is queued. The device is locked. Returns false if the caller has to break the connection, without that
 * lock. */
bool outbox_post(struct ldma_endpoint *endpoint, uint64_t now);

/* piece.c */

/* Does what ldma_call_pull and ldma_call_room do, for any chunk. */
int piece_ask(struct call *call, const struct ldma_rpcrdma_chunk *chunk, bool is_pull,
	      enum ldma_pool_class class, struct ldma_piece *shown, struct ldma_rpc_batch *batch);

/* Ends a pull: its data has come, or there was an error. */
void piece_end_pull(struct piece *piece, int error, struct ldma_rpc_batch *batch);

/* Frees a piece and its buffer. */
void piece_free(struct piece *piece, struct ldma_rpc_batch *batch);

/* Ends all waits for buffers, and returns the pieces that waited, as a list. The endpoint is locked. */
struct piece *piece_cancel_all(struct ldma_endpoint *endpoint);
void piece_fail_all(struct piece *pieces, struct ldma_rpc_batch *batch);

/* call.c */

/* Handles the completion of a Receive: a call has come, or the connection is over. */
void call_arrive(struct call *call, const struct ldma_wc *wc, struct ldma_rpc_batch *batch);

/* Frees a call that is over, and gives its buffers back. */
void call_finish(struct call *call, struct ldma_rpc_batch *batch);

/* Ends a call with an RDMA_ERROR. */
void reply_error(struct call *call, enum ldma_rpcrdma_error error, struct ldma_rpc_batch *batch);

/* Ends a call with the message in call->answer. */
void reply_answer(struct call *call, struct ldma_rpc_batch *batch);

/* transfer.c */

void transfer_start(struct call *call, const struct ldma_rpcrdma_chunk *chunk, uint64_t from,
		    uint8_t *memory, uint64_t length, bool is_pull,
		    void (*complete)(struct call *call, int error, struct ldma_rpc_batch *batch),
		    struct ldma_rpc_batch *batch);

/* slow.c */

/* Gathers the whole message and queues it. */
void slow_begin(struct call *call, struct ldma_rpc_batch *batch);

/* Frees what the slow path took for a call. */
void slow_forget(struct call *call, struct ldma_rpc_batch *batch);

/* server.c */

/* Lets what is to be posted wait for the end of the batch, or for enough data. */
void batch_add(struct ldma_rpc_batch *batch, struct ldma_endpoint *endpoint, uint32_t data_bytes);
int service_add(struct ldma_service *service, struct ldma_endpoint *endpoint);
void service_breaks(struct ldma_service *service, struct ldma_endpoint *endpoint,
		    uint32_t drained_at);
void service_ended(struct ldma_service *service, struct ldma_endpoint *endpoint);
void service_queue(struct ldma_service *service, struct call *call);

#endif
