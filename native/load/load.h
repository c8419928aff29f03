/* The load: many NFSv4.1 sessions that read and write as fast as they are answered, or at a rate, over few connections.
 *
 * One thread runs it (ldma_load_run) and does all the work, for every connection: RDMA through one completion queue, or
 * TCP through epoll. Others may call everything else meanwhile: add sessions, look at figures, make calls of their own on
 * the same connections, add connections and move sessions to them, end it. Each session has a file of its own and depth slots; a slot is a loop of one operation after
 * the other. Files are written before they are read, so that each byte that is read can be compared with what has to be
 * there; no two operations that could get into each other's way are open at the same place.
 *
 * Latency is from when an operation should have started to when its reply was found: waiting for credits and slots counts. */
#ifndef LDMA_LOAD_H
#define LDMA_LOAD_H

#include "io_call.h"
#include "latency.h"
#include "port.h"

#define LDMA_LOAD_STATUSES 16 /* different ones that are counted */
#define LDMA_LOAD_WORDS 192   /* of what went wrong first, with its end */

enum ldma_load_rw { LDMA_LOAD_READ, LDMA_LOAD_WRITE, LDMA_LOAD_MIX };

struct ldma_load_config {
	struct ldma_port *port; /* of RDMA; NULL: TCP */
	struct ldma_cq *cq;     /* of all connections' queue pairs, both ways */
	uint64_t spin_ns;       /* to look for completions before sleeping */
	uint32_t size, depth;
	uint8_t rw; /* enum ldma_load_rw */
	bool is_sequential, verifies;
	uint64_t interval_ns; /* between operations of one session; 0: one follows the other */
};

/* A connection over RDMA. Inline memory: what struct ldma_caller_config says. Data memory, which the peer may read and
 * write: ldma_load_buffer_bytes for each call. */
struct ldma_load_rdma {
	struct ldma_qp *qp;
	uint32_t calls, send_bytes, receive_bytes;
	uint8_t *inline_memory, *data_memory;
	uint64_t inline_va, data_va;
	uint32_t inline_key, data_key;
	uint32_t first_xid;
};

struct ldma_load_session_config {
	uint32_t link; /* the number of its connection */
	uint32_t slots;
	const uint32_t *sequences; /* of each slot, that was used last; NULL: none was used */
	uint64_t seed;             /* of the file's data */
	uint64_t file_bytes;
	struct ldma_io_target target;
};

struct ldma_load_counters {
	uint64_t reads, writes, read_bytes, written_bytes;
	uint64_t fills, filled_bytes; /* WRITEs before a session began */
	uint64_t errors;              /* operations that failed, those with wrong data among them */
	uint64_t wrong;               /* data */
	uint64_t repeats; /* calls that were out when their connection broke, sent by another one */
	uint64_t delays;  /* times that the server asked to come again later */
	uint64_t waited,
		waited_ns; /* operations that had to wait for credits, or for a full stream */
};

struct ldma_load_status {
	uint32_t operation, status;
	uint64_t count;
};

/* Of all sessions together. */
struct ldma_load_figures {
	uint64_t now_ns, began_ns, cpu_ns; /* cpu_ns: of the thread that runs it */
	struct ldma_load_counters counters;
	uint32_t sessions, filled, running, failed; /* running: without those that are not active */
	uint32_t open;                              /* calls under way */
	uint64_t granted;            /* calls that peers allow at once, of all connections */
	struct ldma_latency latency; /* since the figures were last taken */
	struct ldma_load_status statuses[LDMA_LOAD_STATUSES];
};

struct ldma_load_session_figures {
	struct ldma_load_counters counters;
	struct ldma_latency latency;
	uint64_t began_ns;         /* 0: not yet */
	uint64_t gap_ns, pause_ns; /* longest time without a reply; pause_ns: around moves */
	uint32_t moves;
	uint32_t limit;              /* slots that are used now */
	char words[LDMA_LOAD_WORDS]; /* what went wrong first, or nothing */
};

struct ldma_load;

/* Bytes of memory for the data of one call. */
uint32_t ldma_load_buffer_bytes(uint32_t size);

/* 0, -EINVAL or -ENOMEM. */
int ldma_load_create(const struct ldma_load_config *config, struct ldma_load **ret);
void ldma_load_destroy(struct ldma_load *load);

/* Adds a connection: its number, or a negative error. The socket must not block. */
int ldma_load_add_rdma(struct ldma_load *load, const struct ldma_load_rdma *rdma);
int ldma_load_add_tcp(struct ldma_load *load, int fd);

/* The peer takes no longer SENDs than these. */
int ldma_load_limit(struct ldma_load *load, uint32_t link, uint32_t send_bytes);

/* The peer takes calls of each other's sessions by either connection: if one breaks, its sessions go on by the other. 0 or
 * -EINVAL. */
int ldma_load_pair(struct ldma_load *load, uint32_t link, uint32_t other);

/* The session sends its calls by that connection from now on, where the peer takes them, too; those that are out end where
 * they are. Those that were out on a connection that breaks are repeated with the same sequence: each is executed once. 0,
 * -EINVAL, or -ENOTCONN: one of them is over. */
int ldma_load_move_session(struct ldma_load *load, uint32_t session, uint32_t link);

/* No session uses the connection any more: 0, its memory and its queue pair or socket can go. -EBUSY: some do, or a call is
 * out; -EINVAL. */
int ldma_load_close_link(struct ldma_load *load, uint32_t link);

/* Sessions from this number on begin no operations until they are active again. All are, to begin with. */
void ldma_load_set_active(struct ldma_load *load, uint32_t sessions);

/* Adds a session: its number, or a negative error. It begins to fill its file at once if that is to be read. */
int ldma_load_add_session(struct ldma_load *load, const struct ldma_load_session_config *config);

/* Sessions whose files are ready begin, from now on also each one whose file becomes ready. */
void ldma_load_begin(struct ldma_load *load);

/* Does the work until ldma_load_end. */
void ldma_load_run(struct ldma_load *load);

/* No operation begins any more; figures tell when none is open. Calls of others go on. */
void ldma_load_stop(struct ldma_load *load);
void ldma_load_end(struct ldma_load *load);

void ldma_load_figures(struct ldma_load *load, struct ldma_load_figures *ret);
int ldma_load_session_figures(struct ldma_load *load, uint32_t session,
			      struct ldma_load_session_figures *ret);

/* The connection of each session, for as many as there is room; -1: it has failed. Returns how many there are. */
uint32_t ldma_load_places(struct ldma_load *load, int32_t *ret, uint32_t room);

/* A call of somebody else's on a connection; its XID does not matter. 0, -EINVAL or -ENOMEM. */
int ldma_load_call(struct ldma_load *load, uint32_t link, uint64_t user, const uint8_t *message,
		   uint32_t length);

/* The reply to one of them. */
struct ldma_load_reply {
	uint64_t user;
	int error; /* 0, or why there is none */
	uint8_t *message;
	uint32_t length;
};

/* Takes one that came; the message is the caller's to free. False: none. */
bool ldma_load_take_reply(struct ldma_load *load, struct ldma_load_reply *ret);

/* Readable when a reply came, a connection broke or the run ended. Reading clears it. */
int ldma_load_event_fd(const struct ldma_load *load);

/* 0, or why the connection is of no use any more. */
int ldma_load_link_error(struct ldma_load *load, uint32_t link);

#endif
