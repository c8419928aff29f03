/* SPDX-License-Identifier: BSD-2-Clause */
/* The load: many NFSv4.1 sessions that read and write as fast as they are answered, or at a rate, over few connections.
 *
 * One thread runs the load (ldma_load_run) and does all the work, for every connection: RDMA through one completion
 * queue, or TCP through epoll. Other threads may call everything else meanwhile: add sessions, take figures, make calls
 * of their own on the same connections, add connections and move sessions to them, end the load.
 *
 * Each session has a file of its own and `depth` slots; a slot performs one operation after the other. Files are
 * written before they are read, so that each byte that is read can be compared with what has to be there; operations
 * that could disturb each other are never open at the same place.
 *
 * Latency is the time from when an operation should have started to when its reply was found: waiting for credits and
 * slots counts. */
#ifndef LDMA_LOAD_H
#define LDMA_LOAD_H

#include "load/io_call.h"
#include "load/latency.h"
#include "port/port.h"

#define LDMA_LOAD_STATUSES 16 /* the most different statuses that are counted */
#define LDMA_LOAD_WORDS 192   /* bytes of the text of a session's first error, with its NUL */

enum { LDMA_LOAD_FAILED = -1, LDMA_LOAD_LOST = -2 }; /* instead of a session's connection */

enum ldma_load_rw { LDMA_LOAD_READ, LDMA_LOAD_WRITE, LDMA_LOAD_MIX };

struct ldma_load_config {
	struct ldma_port *port; /* of RDMA; NULL: TCP */
	struct ldma_cq *cq;     /* of all connections' queue pairs, both ways */
	uint64_t spin_ns;       /* time to look for completions before sleeping */
	uint32_t size, depth;
	uint8_t rw; /* enum ldma_load_rw */
	bool is_sequential, verifies;
	uint64_t interval_ns; /* between operations of one session; 0: one follows the other */
};

/* A connection over RDMA. inline_memory is as struct ldma_caller_config says. The peer may read and write data_memory,
 * which has ldma_load_buffer_bytes for each call. Both belong to the caller. */
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
	const uint32_t *sequences; /* the last used one of each slot; NULL: none was used */
	uint64_t seed;             /* of the file's data */
	uint64_t file_bytes;
	struct ldma_io_target target;
};

struct ldma_load_counters {
	uint64_t reads, writes, read_bytes, written_bytes;
	uint64_t fills, filled_bytes; /* WRITEs before a session began */
	uint64_t errors;              /* operations that failed, those with wrong data among them */
	uint64_t wrong;               /* operations with wrong data */
	uint64_t repeats; /* calls that were out when their connection broke, sent by another one */
	uint64_t delays;  /* times that the server asked to try again later */
	uint64_t waited,
		waited_ns; /* operations that had to wait for credits, or for a full stream */
};

struct ldma_load_status {
	uint32_t operation, status;
	uint64_t count;
};

/* The figures of all sessions together. */
struct ldma_load_figures {
	uint64_t now_ns, began_ns, cpu_ns; /* cpu_ns: of the thread that runs it */
	struct ldma_load_counters counters;
	uint32_t sessions, filled, running, failed; /* running: without those that are not active */
	uint32_t lost;    /* sessions whose connection broke, until they are resumed or renewed */
	uint32_t open;    /* calls under way */
	uint64_t granted; /* calls that the peers of all connections allow at once */
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
	char words[LDMA_LOAD_WORDS]; /* the first error, or "" */
};

struct ldma_load;

/* Returns the bytes of memory for the data of one call. */
uint32_t ldma_load_buffer_bytes(uint32_t size);

/* Makes a load, which the caller destroys once its thread has left ldma_load_run. Returns 0, -EINVAL or -ENOMEM. */
int ldma_load_create(const struct ldma_load_config *config, struct ldma_load **ret);
void ldma_load_destroy(struct ldma_load *load);

/* Add a connection. Return its number, or a negative error. The socket must not block. */
int ldma_load_add_rdma(struct ldma_load *load, const struct ldma_load_rdma *rdma);
int ldma_load_add_tcp(struct ldma_load *load, int fd);

/* Limits the SENDs of a connection to what its peer takes. */
int ldma_load_limit(struct ldma_load *load, uint32_t link, uint32_t send_bytes);

/* Pairs two connections, on each of which the peer takes calls of the other's sessions: if one breaks, its sessions go
 * on by the other. Returns 0 or -EINVAL. */
int ldma_load_pair(struct ldma_load *load, uint32_t link, uint32_t other);

/* Moves a session: it sends its calls by that connection from now on, where the peer takes them, too. Calls that are
 * out end where they are; if their connection breaks, they are repeated with the same sequence, so that each is
 * executed once. Returns 0, -EINVAL, or -ENOTCONN: one of the connections is over. */
int ldma_load_move_session(struct ldma_load *load, uint32_t session, uint32_t link);

/* Closes a connection that no session uses any more. Returns 0: the caller may free its memory and its queue pair or
 * socket; -EBUSY: a session uses it, or a call is out; or -EINVAL. */
int ldma_load_close_link(struct ldma_load *load, uint32_t link);

/* Lets a session whose connection broke go on by another connection, to which it is bound as well. The server still
 * knows the session: calls that were out are repeated with the same sequence, and each is executed once. Returns 0,
 * -EINVAL (it was not lost) or -ENOTCONN (the connection is over). */
int ldma_load_resume_session(struct ldma_load *load, uint32_t session, uint32_t link);

/* Lets a session whose connection broke go on as a new session, since the server does not know it any more. The file is
 * written anew before it is read: a server that restarted may have lost what was not committed. Seed and size of the
 * file stay as they were. Returns as ldma_load_resume_session, or -EBUSY: a call of it is out on another connection. */
int ldma_load_renew_session(struct ldma_load *load, uint32_t session,
			    const struct ldma_load_session_config *config);

/* Makes the first `sessions` sessions active; those from this number on begin no operations until they are active
 * again. At first all are active. */
void ldma_load_set_active(struct ldma_load *load, uint32_t sessions);

/* Adds a session. Returns its number, or a negative error. It begins at once to fill its file if that is to be read. */
int ldma_load_add_session(struct ldma_load *load, const struct ldma_load_session_config *config);

/* Lets sessions whose files are ready begin, and from now on each session whose file becomes ready. */
void ldma_load_begin(struct ldma_load *load);

/* Does the work until ldma_load_end. One thread calls it. */
void ldma_load_run(struct ldma_load *load);

/* After ldma_load_stop no operation begins any more; figures tell when none is open; calls of other threads go on.
 * ldma_load_end makes ldma_load_run return. */
void ldma_load_stop(struct ldma_load *load);
void ldma_load_end(struct ldma_load *load);

void ldma_load_figures(struct ldma_load *load, struct ldma_load_figures *ret);
int ldma_load_session_figures(struct ldma_load *load, uint32_t session,
			      struct ldma_load_session_figures *ret);

/* Writes the connection of each session, or LDMA_LOAD_FAILED or LDMA_LOAD_LOST, for as many as there is room. Returns
 * how many sessions there are. */
uint32_t ldma_load_places(struct ldma_load *load, int32_t *ret, uint32_t room);

/* Returns when the last reply to an operation came; 0: none did. */
uint64_t ldma_load_heard_ns(struct ldma_load *load);

/* Returns the bytes of memory that one session takes. */
uint64_t ldma_load_session_bytes(uint32_t depth, uint64_t blocks);

/* Sends a call of the caller's own on a connection; its XID does not matter. user comes back with the reply. Returns 0,
 * -EINVAL or -ENOMEM. */
int ldma_load_call(struct ldma_load *load, uint32_t link, uint64_t user, const uint8_t *message,
		   uint32_t length);

/* The reply to such a call. */
struct ldma_load_reply {
	uint64_t user;
	int error; /* 0, or why there is none */
	uint8_t *message;
	uint32_t length;
};

/* Takes a reply that came; the caller frees its message. Returns false if there is none. */
bool ldma_load_take_reply(struct ldma_load *load, struct ldma_load_reply *ret);

/* Returns a descriptor that is readable when a reply came, a connection broke or the run ended. Reading clears it. */
int ldma_load_event_fd(const struct ldma_load *load);

/* Returns 0, or the error that ended the connection. */
int ldma_load_link_error(struct ldma_load *load, uint32_t link);

#endif
