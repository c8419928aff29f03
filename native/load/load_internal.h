/* What the parts of the load know of each other. All of it belongs to who holds the load's lock. */
#ifndef LDMA_LOAD_INTERNAL_H
#define LDMA_LOAD_INTERNAL_H

#include <pthread.h>

#include "caller.h"
#include "load.h"
#include "stream.h"

#define LDMA_LINK_MOST 256     /* connections */
#define LDMA_STREAM_CALLS 4096 /* open on one */
#define LDMA_LOAD_BATCH 64

enum slot_state {
	SLOT_IDLE,    /* waits for its time */
	SLOT_QUEUED,  /* for its connection */
	SLOT_OPEN,    /* its call is out */
	SLOT_DELAYED, /* the server asked for some time */
	SLOT_PARKED,  /* the server does not want it now */
};

struct load_slot {
	struct load_session *session;
	struct load_slot *next;    /* in the list of its state */
	uint32_t number, sequence; /* the latter: that was used last */
	uint32_t retired;          /* the sequence that it had when the server took it back, */
	bool is_restarted;         /* and now begins anew, as servers should expect */
	uint8_t state;
	bool is_write, is_fill;
	bool has_operation;               /* that is not over: */
	uint32_t block, generation, done; /* done: bytes of it, so far */
	uint64_t started_ns, queued_ns, delayed_ns;
};

enum session_phase { SESSION_FILLING, SESSION_READY, SESSION_RUNNING, SESSION_FAILED };

struct load_session {
	struct ldma_load *load;
	struct load_link *link;
	uint32_t number;
	bool is_moving; /* no reply has come by its new connection */
	uint64_t heard_ns;
	struct ldma_io_template read, write;
	struct load_slot *slots, *idle;
	uint32_t slot_count, limit; /* limit: that the server wants to be used, */
	uint32_t most;              /* and the most that it ever did */
	uint32_t lingering;         /* slots beyond it whose operation is not over */
	uint8_t phase;
	uint8_t id[16];
	uint64_t seed, random, due_ns;
	uint32_t blocks, cursor, fill_next, fill_done;
	uint32_t heap_at;      /* 1 and up; 0: not in the heap */
	uint32_t *generations; /* of each block; 0: unknown */
	uint8_t *users;        /* of each block: operations under way, WRITER for a writing one */
	struct ldma_load_session_figures figures;
};

/* A call of somebody else's. */
struct load_call {
	struct load_call *next;
	uint64_t user;
	int error;
	uint8_t *message, *reply;
	uint32_t length, reply_length;
};

struct load_queue {
	struct load_slot *first, *last, *fresh; /* fresh: from here on, not stamped */
};

struct load_link {
	struct ldma_load *load;
	struct load_link *refuge; /* of its sessions if it breaks, or NULL */
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
	uint32_t visitors; /* who want the lock, beside who runs it */
	struct load_link *links[LDMA_LINK_MOST];
	uint32_t link_count;
	struct load_session **sessions;
	uint32_t session_count, session_room, active;
	struct load_session **heap; /* of those with an idle slot, by when they are due; from 1 */
	uint32_t heap_count;
	struct load_slot *delayed, *delayed_last;
	struct load_call *replies, **replies_end;
	int event_fd, wake_fd, epoll_fd;
	bool has_begun, is_stopping, is_ended, is_running;
	pthread_t thread; /* that runs it */
	uint64_t began_ns;
	uint32_t filled, running, failed;
	struct ldma_load_counters counters;
	struct ldma_latency interval;
	struct ldma_load_status statuses[LDMA_LOAD_STATUSES];
	uint64_t cpu_ns; /* of the run that is over */
};

/* Who has a call: a slot, or with the lowest bit somebody else. */
static inline uint64_t load_user_of_slot(const struct load_slot *slot)
{
	return (uint64_t)(uintptr_t)slot;
}

static inline uint64_t load_user_of_call(const struct load_call *call)
{
	return (uint64_t)(uintptr_t)call | 1;
}

uint64_t load_now(void);

/* The lock, for all but who runs it; and letting that one know. */
void load_visit(struct ldma_load *load);
void load_leave(struct ldma_load *load);
void load_wake(struct ldma_load *load);

/* Of a thread, so far. */
uint64_t load_cpu_ns(pthread_t thread);

/* load_session.c: whose turn it is */

int load_session_create(struct ldma_load *load, const struct ldma_load_session_config *config,
			struct load_session **ret);
void load_session_destroy(struct load_session *session);

/* The file is ready, and so is everybody: operations begin. */
void load_session_begin(struct load_session *session, uint64_t now_ns);

/* It will do nothing more. */
void load_session_end(struct load_session *session);

/* Slots begin operations as far as they may: to fill the file, or as it is their time. */
void load_session_feed(struct load_session *session, uint64_t now_ns);

/* Sessions that are due, and slots that were delayed. Returns when to look again. */
uint64_t load_sessions_tick(struct ldma_load *load, uint64_t now_ns);

/* The server wants so many slots to be used. */
void load_session_follow(struct load_session *session, uint32_t target);

/* It is active again. */
void load_session_resume(struct load_session *session, uint64_t now_ns);

/* One more block of the file was written. */
void load_session_filled(struct load_session *session, uint64_t now_ns);

/* The slot has nothing to do, or not before some time has passed; rest: and perhaps begins something new. */
void load_slot_idle(struct load_slot *slot);
void load_slot_rest(struct load_slot *slot, uint64_t now_ns);
void load_slot_delay(struct load_slot *slot, uint64_t now_ns);

/* load_slot.c: operations */

/* What the slot wants now. */
void load_slot_io(const struct load_slot *slot, struct ldma_io *ret);
void load_slot_fill(const struct load_slot *slot, uint8_t *memory); /* the data of a WRITE */

/* Its call went out; and how it ended: with a message and perhaps placed data, or an error of the transport. */
void load_slot_sent(struct load_slot *slot, uint64_t now_ns);
void load_slot_replied(struct load_slot *slot, const uint8_t *message, uint32_t length,
		       const uint8_t *placed, uint32_t placed_length, uint64_t now_ns);
void load_slot_lost(struct load_slot *slot, const struct load_link *link, int error,
		    uint64_t now_ns);

/* load_outcome.c: what went wrong */

/* Counts an error and keeps the words of a session's first one. */
void load_session_error(struct load_session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void load_count_status(struct ldma_load *load, uint32_t operation, uint32_t status);

/* Says what is wrong with data that was read. */
void load_session_wrong(struct load_session *session, uint64_t offset, uint32_t generation,
			const uint8_t *data, uint32_t length, uint32_t at);

/* load_link.c: connections */

struct load_link *load_link_create(struct ldma_load *load);
void load_link_destroy(struct load_link *link);
void load_link_queue(struct load_link *link, struct load_slot *slot);

/* The next slot that waits, stamped; and it waits no more. */
void load_link_stamp(struct load_link *link, uint64_t now_ns);
struct load_slot *load_link_take(struct load_link *link);
struct load_call *load_link_take_call(struct load_link *link);

/* A call ended, whoever has it. */
void load_link_ended(struct load_link *link, uint64_t user, int error, const uint8_t *message,
		     uint32_t length, const uint8_t *placed, uint32_t placed_length,
		     uint64_t now_ns);

/* The connection is of no use any more, and what was open has ended: so do those who wait, and its sessions. */
void load_link_fail(struct load_link *link, int error, uint64_t now_ns);

/* load_move.c: sessions that change their connection */

/* The connection is of no use any more: its sessions go on by the one that it is paired with, if that works. */
void load_link_abandon(struct load_link *link, uint64_t now_ns);

/* A reply came to the session, by a connection. */
void load_session_heard(struct load_session *session, const struct load_link *link,
			uint64_t now_ns);

/* load_rdma.c: what has come; what can be sent; and sleeping, without the lock. */
uint32_t load_rdma_receive(struct ldma_load *load);
void load_rdma_send(struct ldma_load *load);
void load_rdma_wait(struct ldma_load *load, uint64_t timeout_ns);

/* load_tcp.c: the same. Sleeping finds which connections have something. */
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
