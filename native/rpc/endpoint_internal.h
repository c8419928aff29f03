/* What the files of the endpoint and its service share.
 *
 * Locks: the device's (ldma_port_lock) may be held when an endpoint's is taken, never the other way round. No buffer goes
 * back to a pool, and nobody's function is called, while either is held. */
#ifndef LDMA_ENDPOINT_INTERNAL_H
#define LDMA_ENDPOINT_INTERNAL_H

#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "endpoint.h"
#include "lock.h"
#include "server.h"

#define FEW_SEGMENTS 8 /* that a call has without memory of their own */
#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* The low bits of a work request's ID say what the rest points to. */
enum tag {
	TAG_RECEIVE, /* a request */
	TAG_SEND,    /* a request */
	TAG_PIECE,
	TAG_NOTHING, /* an endpoint, which has only to know if it failed */
	TAG_MASK = 7,
};

enum op_kind { OP_READ, OP_WRITE, OP_SEND };

/* What is to be posted, in the endpoint's order. */
struct op {
	struct op *next;
	uint64_t stalled_ns; /* since when the send queue has had no room for it; 0: it had */
	uint8_t kind;
};

struct request;

struct piece {
	struct ldma_piece shown;
	struct op op;
	struct ldma_pool_waiter waiter;
	struct ldma_pool_buffer buffer; /* handle 0: none */
	struct request *request;
	const struct ldma_rpcrdma_chunk *chunk;
	ldma_piece_fn done;
	uint32_t posted;                /* bytes of it */
	uint32_t segment, segment_used; /* of the chunk: where the next byte goes */
	bool is_pull;
	struct piece *next,
		*previous; /* of those that wait, that departed, that were posted as one or that are free */
};

/* Data on its way between memory of the process and a chunk, a piece at a time. */
struct transfer {
	const struct ldma_rpcrdma_chunk *chunk;
	uint8_t *memory;
	uint64_t from; /* in the chunk */
	uint64_t length, asked;
	uint32_t under_way;
	bool is_pull, is_driven, has_news;
	int error;
	void (*complete)(struct request *request, int error);
};

/* A part of a whole message that is fetched. */
struct fetch {
	const struct ldma_rpcrdma_chunk *chunk;
	uint64_t from, length;
	uint8_t *to;
};

/* A Receive, then its call, then the reply. */
struct request {
	struct ldma_call call;
	struct op op; /* the reply's SEND */
	struct ldma_pool_buffer buffer;
	struct ldma_rpcrdma header;
	struct ldma_rpcrdma_segment few[FEW_SEGMENTS];
	uint32_t pieces; /* that somebody has */
	uint32_t send_bytes, invalidated;
	bool is_replying;
	bool is_overfull;       /* more was pushed than the chunk takes */
	struct piece *departed; /* WRITEs whose end is that of the reply */
	uint64_t sent_ns;

	/* The slow path's. */
	uint8_t *whole;
	uint64_t whole_bytes;
	struct fetch *fetches;
	uint32_t fetch_count, fetched;
	uint8_t *answer, *data;
	uint64_t answer_bytes, data_bytes;
	struct transfer transfer;
	struct request *next; /* of those that are free, to be posted, sent, gathered or queued */
};

struct request_list {
	struct request *first, *last;
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
	uint32_t target, to_post_count, request_count;
	uint32_t unsignaled; /* requests in a row that tell nothing when they are done */
	struct request *free_requests;
	struct piece *free_pieces, *waiting;
	struct block *blocks;
	struct request_list to_post, sending, to_gather;
	struct op *first_op, *last_op;
	struct op *last_transfer; /* behind which the next goes: before replies of this batch */
	struct ldma_pool_waiter receive_waiter;
	struct ldma_endpoint_stats stats;

	/* The service's. */
	struct ldma_endpoint *next, *next_over, *next_dirty;
	bool is_dirty, is_breaking;
	uint32_t drained_at; /* of the completion queue, if is_breaking */
};

struct ldma_service {
	struct ldma_service_config config;
	pthread_t thread;
	pthread_t self;   /* the same, set by itself */
	bool is_batching; /* for the thread alone */
	struct ldma_endpoint *dirty;
	uint64_t unposted_bytes; /* of data, in this batch; for the thread alone */
	uint64_t looked_ns;
	struct ldma_program *program;
	struct ldma_service_stats stats;
	bool is_stopping;

	pthread_mutex_t mutex; /* of what follows */
	pthread_cond_t has_call, has_over;
	struct request_list calls;
	struct ldma_endpoint *endpoints, *first_over, *last_over;
	uint32_t breaking;
	uint64_t completions; /* that endpoints may have */
};

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline struct request *request_of(const struct ldma_call *call)
{
	return CONTAINER(call, struct request, call);
}

static inline void list_append(struct request_list *list, struct request *request)
{
	request->next = NULL;
	if (list->first)
		list->last->next = request;
	else
		list->first = request;
	list->last = request;
}

static inline struct request *list_take(struct request_list *list)
{
	struct request *request = list->first;

	if (request)
		list->first = request->next;
	return request;
}

/* endpoint.c */

void endpoint_get(struct ldma_endpoint *endpoint);

/* The connection is over: nothing more is posted, what was will complete as flushed. */
void endpoint_break(struct ldma_endpoint *endpoint);

/* What was posted has completed, all of it. */
void endpoint_drained(struct ldma_endpoint *endpoint);

/* Tells the service once nothing of the endpoint is left. */
void endpoint_check_over(struct ldma_endpoint *endpoint);

/* A completion; by the service's thread. */
void endpoint_complete(const struct ldma_wc *wc, uint64_t now);

/* credits.c; the endpoint is locked */

/* Prepares Receives up to the credits. */
void credits_top_up(struct ldma_endpoint *endpoint);

/* What a reply may grant. */
uint32_t credits_granted(const struct ldma_endpoint *endpoint);

/* A request that is free, or NULL. */
struct request *request_take(struct ldma_endpoint *endpoint);

void credits_receive_buffer(struct ldma_pool_waiter *waiter);

/* outbox.c */

/* The endpoint is locked. */
void outbox_append(struct ldma_endpoint *endpoint, struct op *op, enum op_kind kind);

/* Posts what there is to post, now or with others of the batch. data_bytes: that were added for the peer. */
void outbox_submit(struct ldma_endpoint *endpoint, uint32_t data_bytes);

/* The device is locked. False: the connection has to be broken, by the caller, without that lock. */
bool outbox_post(struct ldma_endpoint *endpoint, uint64_t now);

/* piece.c */

/* As ldma_call_pull and ldma_call_room, for any chunk. */
int piece_ask(struct request *request, const struct ldma_rpcrdma_chunk *chunk, uint64_t offset,
	      uint32_t length, bool is_pull, ldma_piece_fn done, void *user);

/* Its data is there, or is not. */
void piece_end_pull(struct piece *piece, int error);

/* Its buffer goes back, and so does it. */
void piece_free(struct piece *piece);

/* Nobody waits for buffers any more; those that did are returned, as a list. The endpoint is locked. */
struct piece *piece_cancel_all(struct ldma_endpoint *endpoint);
void piece_fail_all(struct piece *pieces);

/* request.c */

/* A call came, of so many bytes. */
void request_arrive(struct request *request, uint32_t length, uint64_t now);

/* It is over: its buffers go back. */
void request_finish(struct request *request);

/* reply.c */

/* Ends a call with an RDMA_ERROR. */
void reply_error(struct request *request, enum ldma_rpcrdma_error error);

/* With the message that is in request->answer. */
void reply_answer(struct request *request);

/* transfer.c */

void transfer_start(struct request *request, const struct ldma_rpcrdma_chunk *chunk, uint64_t from,
		    uint8_t *memory, uint64_t length, bool is_pull,
		    void (*complete)(struct request *request, int error));

/* slow.c */

/* Gathers the whole message and queues it. */
void slow_begin(struct request *request);

/* What it has taken is free again. */
void slow_forget(struct request *request);

/* server.c */

/* In a batch, what is to be posted waits for its end, or for enough data to be worth it. False: this is none. */
bool service_defer(struct ldma_service *service, struct ldma_endpoint *endpoint,
		   uint32_t data_bytes);
int service_add(struct ldma_service *service, struct ldma_endpoint *endpoint);
void service_breaks(struct ldma_service *service, struct ldma_endpoint *endpoint,
		    uint32_t drained_at);
void service_over(struct ldma_service *service, struct ldma_endpoint *endpoint);
void service_queue(struct ldma_service *service, struct request *request);

#endif
