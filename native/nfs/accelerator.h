/* Serves READ, WRITE and COMMIT on open files without Python: the program (call.h) that a transport shows its calls.
 *
 * It takes what surely succeeds: a COMPOUND of the shape of compound.h, on a session and a connection that know each other,
 * by a stateid that was granted to this client and user. All else it leaves, with nothing done, to those who know
 * the right answer. What was taken may still meet an I/O error, and is answered with it. */
#ifndef LDMA_ACCELERATOR_H
#define LDMA_ACCELERATOR_H

#include "call.h"
#include "changes.h"
#include "histogram.h"
#include "opens.h"
#include "sessions.h"
#include "workers.h"

struct ldma_operation;

struct ldma_kind_counters {
	uint64_t calls, bytes, errors;
	struct ldma_histogram storage; /* of each storage call, the wait for a thread included */
};

struct ldma_accelerator_counters {
	uint64_t taken;
	/* What was left, and why. */
	uint64_t left_shape, left_session, left_stateid, left_slot, left_limit;
	uint64_t at_once;   /* storage calls that did not have to wait */
	uint64_t by_worker; /* those that a worker made */
	uint64_t lost;      /* calls whose connection went before all of their data had come */
	uint64_t sync_failures;
};

struct ldma_accelerator_config {
	uint32_t threads;
	uint32_t operations; /* at a time; more are left */
	uint32_t read_max;   /* bytes of one READ; more are not given at once */
};

struct ldma_accelerator {
	struct ldma_program program; /* first */
	struct ldma_accelerator_config config;
	uint64_t *verifier; /* atomic; not its own: others answer WRITE and COMMIT, too */
	struct ldma_sessions sessions;
	struct ldma_opens opens;
	struct ldma_changes *changes; /* not its own */
	struct ldma_workers workers;

	struct ldma_lock stats_lock;
	struct ldma_accelerator_counters counters;
	struct ldma_kind_counters kinds[LDMA_KINDS];

	struct ldma_lock lock; /* guards what is below */
	bool is_closed;
	struct ldma_operation *free; /* never given back before the end */
	uint32_t made, in_use;
};

/* 0 or a negative error. verifier: of WRITE and COMMIT; it becomes another one when a sync fails. */
int ldma_accelerator_create(const struct ldma_accelerator_config *config,
			    struct ldma_changes *changes, uint64_t *verifier,
			    struct ldma_accelerator **ret);

/* Takes no more calls. */
void ldma_accelerator_close(struct ldma_accelerator *accelerator);

/* Calls that were taken and have not ended. */
uint32_t ldma_accelerator_in_use(struct ldma_accelerator *accelerator);

/* Ends its threads and forgets sessions and grants. Closed, and nothing is in use. */
void ldma_accelerator_stop(struct ldma_accelerator *accelerator);

/* Stops it, too. No transport shows it calls any more. */
void ldma_accelerator_destroy(struct ldma_accelerator *accelerator);

#endif
