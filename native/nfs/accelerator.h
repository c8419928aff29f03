/* SPDX-License-Identifier: BSD-2-Clause */
/* Serves READ, WRITE and COMMIT on open files without Python. It is the program (call.h) that a transport shows its
 * calls.
 *
 * It takes calls that surely succeed: a COMPOUND of the shape of compound.h, on a session that is bound to the
 * connection, by a stateid that was granted to this client and user. It leaves all others, with nothing done, to
 * Python, which knows the right answer. A call that it took may still meet an I/O error, and is answered with it. */
#ifndef LDMA_ACCELERATOR_H
#define LDMA_ACCELERATOR_H

#include "base/histogram.h"
#include "nfs/changes.h"
#include "nfs/opens.h"
#include "nfs/sessions.h"
#include "nfs/workers.h"
#include "rpc/call.h"

struct ldma_nfs_call;

struct ldma_kind_counters {
	uint64_t calls, bytes, errors;
	struct ldma_histogram storage; /* of each storage call, the wait for a thread included */
};

struct ldma_accelerator_counters {
	uint64_t taken; /* and answered */
	/* The calls that were left, by reason. */
	uint64_t left_shape, left_session, left_stateid, left_slot, left_limit;
	uint64_t at_once;   /* storage calls that did not have to wait */
	uint64_t by_worker; /* storage calls that a worker made */
	uint64_t lost;      /* calls whose connection went before all of their data had come */
	uint64_t sync_failures;
};

struct ldma_accelerator_config {
	uint32_t threads;
	uint32_t operations; /* at a time; more are left */
	uint32_t read_max;   /* bytes of one READ; more are not given at once */
	bool has_reserve;    /* a COMMIT does not wait behind all READs and WRITEs */
};

struct ldma_accelerator {
	struct ldma_program program; /* first */
	struct ldma_accelerator_config config;
	uint64_t *verifier; /* atomic; not its own, since Python answers WRITE and COMMIT, too */
	struct ldma_sessions sessions;
	struct ldma_opens opens;
	struct ldma_changes *changes; /* not its own */
	struct ldma_workers workers;

	struct ldma_lock stats_lock;
	struct ldma_accelerator_counters counters;
	struct ldma_kind_counters kinds[LDMA_KINDS];

	struct ldma_lock lock; /* guards what is below */
	bool is_closed;
	struct ldma_nfs_call *free; /* freed by ldma_accelerator_destroy only */
	uint32_t made, in_use;
};

/* Makes an accelerator. Returns 0 or a negative error. verifier: of WRITE and COMMIT; a sync that fails changes it. */
int ldma_accelerator_create(const struct ldma_accelerator_config *config,
			    struct ldma_changes *changes, uint64_t *verifier,
			    struct ldma_accelerator **ret);

/* Takes no more calls. */
void ldma_accelerator_close(struct ldma_accelerator *accelerator);

/* Returns how many calls were taken and have not ended. */
uint32_t ldma_accelerator_in_use(struct ldma_accelerator *accelerator);

/* Ends its threads and forgets sessions and grants. It has to be closed, with nothing in use. */
void ldma_accelerator_stop(struct ldma_accelerator *accelerator);

/* Stops and frees it. No transport may show it calls any more. */
void ldma_accelerator_destroy(struct ldma_accelerator *accelerator);

#endif
