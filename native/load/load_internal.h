/* SPDX-License-Identifier: BSD-2-Clause */
/* Declares what the files of the load share. Only a thread that holds the load's lock uses it. */
#ifndef LDMA_LOAD_INTERNAL_H
#define LDMA_LOAD_INTERNAL_H

#include <pthread.h>

#include "load/load.h"
#include "rpc/caller.h"
#include "rpc/stream.h"

#define LDMA_LINK_MOST 4096    /* connections, including those that are over */
#define LDMA_STREAM_CALLS 4096 /* open on one TCP connection */
#define LDMA_LOAD_BATCH 64

enum slot_state {
	SLOT_IDLE,    /* waits for its time */
	SLOT_QUEUED,  /* waits for its connection */
	SLOT_OPEN,    /* its call is out */
	SLOT_DELAYED, /* the server asked for some time */
	SLOT_PARKED,  /* the server does not want it now */
	SLOT_HELD,    /* its connection broke: its operation waits for the session */
};

struct load_slot {
	struct load_session *session;
	struct load_slot *next;    /* in the list of its state */
	uint32_t number, sequence; /* sequence: the one used last */
	uint32_t retired;          /* its sequence when the server took the slot back */
	bool is_restarted;         /* it began anew after that, as servers should expect */
	uint8_t state;
	bool is_write, is_fill;
	bool has_operation;               /* it has an operation that is not over */
	uint32_t block, generation, done; /* of the operation; done: bytes so far */
	uint64_t started_ns, queued_ns, delayed_ns;
};

enum session_phase {
	SESSION_FILLING,
	SESSION_READY,
	SESSION_RUNNING,
	SESSION_LOST, /* its connection broke; it may get another one */
	SESSION_FAILED,
};

struct load_session {
	struct ldma_load *load;
	struct load_link *link;
	uint32_t number;
	bool is_moving; /* no reply has come by its new connection */
	uint64_t heard_ns;
	struct ldma_io_template read, write;
	struct load_slot *slots, *idle, *held;
	uint32_t slot_count, limit; /* limit: how many slots the server wants to be used */
	uint32_t most;              /* the highest limit so far */
	uint32_t lingering;         /* slots beyond the limit whose operation is not over */
	uint8_t phase, lost_phase;  /* lost_phase: the phase in which it was lost */
	uint8_t id[16];
	uint64_t seed, random, due_ns;
	uint32_t blocks, cursor, fill_next, fill_done;
	uint32_t heap_at;      /* 1 and up; 0: not in the heap */
	uint32_t *generations; /* of each block; 0: unknown */
	uint8_t *users;        /* of each block: operations under way, WRITER for a writing one */
	struct ldma_load_session_figures figures;
};

/* A call of another thread (ldma_load_call). */
struct load_call {
	struct load_call *next;
	uint64_t user;
	int error;
	uint8_t *message, *reply;
	uint32_t length, reply_length;
};

struct load_queue {
	struct load_slot *first, *last, *fresh; /* fresh: the first that is not stamped */
};

struct load_link {
	struct ldma_load *load;
	struct load_link *refuge; /* where its sessions go if it breaks, or NULL */
	uint32_t number;
	int error;
	struct load_queue queue;
	struct load_call *calls, **calls_end; /* to be sent */
	uint32_t open;
	/* RDMA */
	struct ldma_caller caller;
	uint8_t *data_memory;
	uint64_t data_va;
	uint32_t data_key, receive_count;
	uint32_t receives[LDMA_LOAD_BATCH]; /* to be given back */
	/* TCP */
	struct ldma_stream stream;
	uint64_t *users; /* of open calls, by number */
	uint32_t *xids, *free, free_count, xid_step;
	bool is_write_awaited;
};

struct ldma_load {
	struct ldma_load_config config;
	pthread_mutex_t lock;
	uint32_t visitors; /* threads that want the lock, without the one that runs the load */
	struct load_link *links[LDMA_LINK_MOST];
	uint32_t link_count;
	struct load_session **sessions;
	uint32_t session_count, session_room, active;
	struct load_session **heap; /* sessions with an idle slot, by when they are due; from 1 */
	uint32_t heap_count;
	struct load_slot *delayed, *delayed_last;
	struct load_call *replies, **replies_end;
	int event_fd, wake_fd, epoll_fd;
	bool has_begun, is_stopping, is_ended, is_running;
	pthread_t thread; /* the thread that runs the load */
	uint64_t began_ns;
	uint64_t heard_ns;
	uint32_t filled, running, failed, lost;
	struct ldma_load_counters counters;
	struct ldma_latency interval;
	struct ldma_load_status statuses[LDMA_LOAD_STATUSES];
	uint64_t cpu_ns; /* of a run that is over */
};

/* The user of a call on the wire is a slot, or with the lowest bit set a struct load_call. */
static inline uint64_t load_user_of_slot(const struct load_slot *slot)
{
	return (uint64_t)(uintptr_t)slot;
}

static inline uint64_t load_user_of_call(const struct load_call *call)
{
	return (uint64_t)(uintptr_t)call | 1;
}

uint64_t load_now(void);

/* Lock and unlock the load for all threads but the one that runs it, which is woken. */
void load_visit(struct ldma_load *load);
void load_leave(struct ldma_load *load);
void load_wake(struct ldma_load *load);

/* Returns the CPU time of a thread so far. */
uint64_t load_cpu_ns(pthread_t thread);

/* load_session.c: which session's turn it is */

int load_session_create(struct ldma_load *load, const struct ldma_load_session_config *config,
			struct load_session **ret);
void load_session_destroy(struct load_session *session);

/* Begins operations: the file is ready, and the load has begun. */
void load_session_begin(struct load_session *session, uint64_t now_ns);

/* load_session_end ends a session for good, the other one until it has another connection. */
void load_session_end(struct load_session *session);
void load_session_lose(struct load_session *session);

/* Starts all slots anew, with these sequences. Their operations must have been dropped. */
void load_session_reset(struct load_session *session,
			const struct ldma_load_session_config *config);

/* Lets slots begin operations as far as they may: to fill the file, or when they are due. */
void load_session_feed(struct load_session *session, uint64_t now_ns);

/* Handles sessions that are due and slots that were delayed. Returns when to look again. */
uint64_t load_sessions_tick(struct ldma_load *load, uint64_t now_ns);

/* Follows the server, which wants so many slots to be used. */
void load_session_follow(struct load_session *session, uint32_t target);

/* Goes on with a session that is active again. */
void load_session_resume(struct load_session *session, uint64_t now_ns);

/* Takes note that one more block of the file was written. */
void load_session_filled(struct load_session *session, uint64_t now_ns);

/* The slot has nothing to do (idle); has nothing to do and may begin a new operation (rest); or waits a while
 * (delay). */
void load_slot_idle(struct load_slot *slot);
void load_slot_rest(struct load_slot *slot, uint64_t now_ns);
void load_slot_delay(struct load_slot *slot, uint64_t now_ns);

/* Lets the slot wait with its operation until its session has a connection. */
void load_slot_hold(struct load_slot *slot);

/* load_slot.c: operations */

/* Fills in the READ or WRITE that the slot wants now. */
void load_slot_io(const struct load_slot *slot, struct ldma_io *ret);
void load_slot_fill(const struct load_slot *slot, uint8_t *memory); /* the data of a WRITE */

/* The slot's call went out; it ended with a reply and perhaps placed data; it ended with an error of the transport. */
void load_slot_sent(struct load_slot *slot, uint64_t now_ns);
void load_slot_replied(struct load_slot *slot, const uint8_t *message, uint32_t length,
		       const uint8_t *placed, uint32_t placed_length, uint64_t now_ns);
void load_slot_lost(struct load_slot *slot, const struct load_link *link, int error,
		    uint64_t now_ns);

/* Ends the slot's operation; the content of its block is not known any more. */
void load_slot_drop(struct load_slot *slot);

/* load_outcome.c: errors */

/* Counts an error and keeps the text of a session's first one. */
void load_session_error(struct load_session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void load_count_status(struct ldma_load *load, uint32_t operation, uint32_t status);

/* Reports what is wrong with data that was read. */
void load_session_wrong(struct load_session *session, uint64_t offset, uint32_t generation,
			const uint8_t *data, uint32_t length, uint32_t at);

/* load_link.c: connections */

struct load_link *load_link_create(struct ldma_load *load);
void load_link_destroy(struct load_link *link);
void load_link_queue(struct load_link *link, struct load_slot *slot);

/* load_link_stamp stamps the waiting slots with the time; the others take the next waiting slot, or call, out of its
 * queue. */
void load_link_stamp(struct load_link *link, uint64_t now_ns);
struct load_slot *load_link_take(struct load_link *link);
struct load_call *load_link_take_call(struct load_link *link);

/* Ends a call of a slot or of another thread. */
void load_link_ended(struct load_link *link, uint64_t user, int error, const uint8_t *message,
		     uint32_t length, const uint8_t *placed, uint32_t placed_length,
		     uint64_t now_ns);

/* Fails a connection whose open calls have ended: waiting calls fail, and its sessions are lost. */
void load_link_fail(struct load_link *link, int error, uint64_t now_ns);

/* load_move.c: sessions that change their connection */

/* Gives a broken connection up: its sessions go on by the connection that it is paired with, if that works. */
void load_link_abandon(struct load_link *link, uint64_t now_ns);

/* Takes note that a reply came to the session by a connection. */
void load_session_heard(struct load_session *session, const struct load_link *link,
			uint64_t now_ns);

/* load_restore.c: sessions whose connection broke */

/* Lets delayed slots of the connection's sessions wait for another connection. */
void load_hold_delayed(const struct load_link *link);

/* load_rdma.c: takes what has come; sends what can be sent; sleeps without the lock. */
uint32_t load_rdma_receive(struct ldma_load *load);
void load_rdma_send(struct ldma_load *load);
void load_rdma_wait(struct ldma_load *load, uint64_t timeout_ns);

/* load_tcp.c: the same for TCP. load_tcp_wait also finds the connections that have something. */
struct load_tcp_events;
int load_tcp_open(struct load_link *link, int fd);
void load_tcp_leave(struct load_link *link);
void load_tcp_close(struct load_link *link);
void load_tcp_receive(struct ldma_load *load, const struct load_tcp_events *events);
void load_tcp_send(struct ldma_load *load);
void load_tcp_wait(struct ldma_load *load, uint64_t timeout_ns, struct load_tcp_events *ret);

struct load_tcp_events {
	uint32_t count;
	struct load_link *links[LDMA_LOAD_BATCH];
};

#endif
