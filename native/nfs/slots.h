/* SPDX-License-Identifier: BSD-2-Clause */
/* The slot table of a session (RFC 8881 2.10.6): each request is executed once, even if the client repeats it.
 *
 * Any thread may use a table. A slot belongs to the thread that began its request until that is ended or cancelled; if
 * the client repeats the request meanwhile, it is told to wait (DELAY). The reply of the last request is kept if the
 * client asked for it or if it is small (LDMA_SLOTS_SMALL), so that most requests survive a lost connection although
 * clients seldom ask for it.
 *
 * Resizing. A raised target is in force at once: new slots begin at sequence 1. A lowered one is announced first
 * (sr_target_highest_slotid). The slots from the target on are removed once three things hold: a request on a slot
 * whose last reply announced the target has an sa_highest_slotid below it; none of those slots is executing; and no
 * request is left that was executing when the target fell. A slot that comes back may begin at 1 or go on where it was:
 * clients do both.
 *
 * Memory is taken for slots that were used, 32 at a time, and for their replies. */
#ifndef LDMA_SLOTS_H
#define LDMA_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/times.h"
#include "wire/nfs.h"

#define LDMA_SLOTS_MAX 1024
#define LDMA_SLOTS_CHUNK 32
#define LDMA_SLOTS_SMALL 512 /* bytes of a reply that is kept although the client did not ask */
#define LDMA_SLOTS_CONNECTIONS 16 /* connections of one session that are remembered */
#define LDMA_SESSION_ID_BYTES 16
#define LDMA_SLOTS_LEVELS 98 /* the numbers of slots that are told apart: all up to 64 */

struct ldma_slot;

/* The requests that are served without Python. */
enum ldma_kind { LDMA_KIND_READ, LDMA_KIND_WRITE, LDMA_KIND_COMMIT, LDMA_KINDS };

struct ldma_slots_counters {
	uint64_t executed; /* begun, without those that were cancelled */
	uint64_t replayed;
	uint64_t delayed;  /* repeated while it was executing */
	uint64_t uncached; /* repeated, and its reply was not kept */
	uint64_t false_retries;
	uint64_t misordered;
	uint64_t bad_slots;
	uint64_t retired;     /* slots that were removed */
	uint64_t reply_bytes; /* of memory for replies now */
	/* Of requests that did not pass Python. */
	uint64_t reads, read_bytes, writes, written_bytes, commits;
};

/* What requests of a session did, and how long it took. It only grows (times.h). */
struct ldma_slots_account {
	uint64_t operations, read_bytes, written_bytes;
	uint64_t waited_ns;  /* for data buffers */
	uint64_t storage_ns; /* in the store */
	/* Requests, by how many were executing when they began, themselves included. */
	uint32_t levels[LDMA_SLOTS_LEVELS];
	struct ldma_times latency; /* from their arrival to their end */
};

/* The figures of one request, which ends at now_ns. */
struct ldma_slots_took {
	uint64_t now_ns, read_bytes, written_bytes, waited_ns, storage_ns;
	bool is_native; /* it succeeded without Python: it counts as one of its kind */
	enum ldma_kind kind;
};

struct ldma_slots {
	/* Never change. */
	uint8_t session_id[LDMA_SESSION_ID_BYTES];
	uint64_t client;
	uint32_t cache_bytes;
	uint32_t references;   /* atomic */
	uint32_t status_flags; /* atomic: sr_status_flags, for replies that do not pass Python */
	uint32_t request_max,
		response_max;            /* atomic: bytes of a message, as CREATE_SESSION agreed */
	struct ldma_slots *next_session; /* guarded by sessions.h */

	struct ldma_lock lock; /* guards everything below */
	bool is_closed;
	uint32_t size;                     /* slots that exist */
	uint32_t target;                   /* slots that are wanted */
	uint32_t peak;                     /* the highest size so far */
	uint32_t generation;               /* counts falls of the target */
	uint32_t executing, executing_old; /* slots; those begun before the target fell last */
	uint64_t used_ns;
	struct ldma_slots_counters counters;
	struct ldma_slots_account account;
	uint32_t bound_next;
	uint64_t bound[LDMA_SLOTS_CONNECTIONS]; /* connections; 0: none */
	struct ldma_slot *chunks[LDMA_SLOTS_MAX / LDMA_SLOTS_CHUNK];
};

/* The limits in the result of SEQUENCE. */
struct ldma_slots_limits {
	uint32_t highest, target_highest; /* slot ids */
};

/* Makes a table. slots: 1 to LDMA_SLOTS_MAX. The caller has the one reference. Returns NULL without memory. */
struct ldma_slots *ldma_slots_create(const uint8_t *session_id, uint64_t client, uint32_t slots,
				     uint32_t cache_bytes);
void ldma_slots_get(struct ldma_slots *slots);
void ldma_slots_put(struct ldma_slots *slots);

/* The arguments of SEQUENCE. fingerprint: of the request, or 0; a repeated request with another fingerprint is a false
 * retry. */
struct ldma_sequence {
	uint32_t slot, sequence, highest;
	bool cache_this;
	uint64_t fingerprint;
};

/* Begins a request, which arrived at now_ns. LDMA_NFS_OK with *replay NULL: the caller executes the request, and ends
 * or cancels it. LDMA_NFS_OK with a *replay, of *length bytes: it was executed before; that is its reply, which the
 * caller frees. Any other status is the answer to SEQUENCE. */
enum ldma_nfs_status ldma_slots_begin(struct ldma_slots *slots, const struct ldma_sequence *asked,
				      uint64_t now_ns, uint8_t **replay, uint32_t *length);

/* Begins a request only if it is to be executed, and returns whether it is; else nothing changes, not even counters. */
bool ldma_slots_try(struct ldma_slots *slots, const struct ldma_sequence *asked, uint64_t now_ns);

/* Returns the most requests that were executing at a time between two looks, counted when requests began: exact up to
 * 64, above within an eighth. */
uint32_t ldma_slots_most(const struct ldma_slots_account *before,
			 const struct ldma_slots_account *now);

/* Ends a request that was executed, and adds its figures. reply: NULL if it must not be kept. Returns whether it is
 * kept. */
bool ldma_slots_end(struct ldma_slots *slots, uint32_t slot, const struct ldma_slots_took *took,
		    const void *reply, uint32_t length);

bool ldma_slots_is_executing(struct ldma_slots *slots, uint32_t slot);

/* Ends a request that was not executed: the slot is again as it was before. */
void ldma_slots_cancel(struct ldma_slots *slots, uint32_t slot);

/* Sets how many slots are wanted, 1 to LDMA_SLOTS_MAX. */
void ldma_slots_set_target(struct ldma_slots *slots, uint32_t target);
struct ldma_slots_limits ldma_slots_limits(struct ldma_slots *slots);

/* Bind a session to connections, by number. Of more than LDMA_SLOTS_CONNECTIONS those bound first are forgotten. */
void ldma_slots_bind(struct ldma_slots *slots, uint64_t connection);
void ldma_slots_unbind(struct ldma_slots *slots, uint64_t connection);
bool ldma_slots_is_bound(struct ldma_slots *slots, uint64_t connection);

/* Lets no further request begin: BADSESSION. Those that have begun may end. */
void ldma_slots_close(struct ldma_slots *slots);

#endif
