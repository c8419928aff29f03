/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads for storage calls that may block, and the queue before them.
 *
 * The threads have no privileges (capabilities): the files that they are given are open already, and must not be used
 * with root's rights.
 *
 * With a reserve, work of the control lane has a thread of its own besides, and elsewhere takes turns with the rest, so
 * that it does not wait for all that a greedy client has queued.
 *
 * For the lab they can imitate a slow store. With a delay each piece of work waits that long before a thread takes it,
 * and occupies no thread meanwhile. With a width, no more pieces than that are between the begin of their delay and
 * their end; the rest queue. Any thread may use it. */
#ifndef LDMA_WORKERS_H
#define LDMA_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define LDMA_WORKERS_MAX 64

enum ldma_work_lane { LDMA_WORK_DATA, LDMA_WORK_CONTROL, LDMA_WORK_LANES };

struct ldma_work {
	struct ldma_work *next;
	enum ldma_work_lane lane; /* set by the caller */
	void (*run)(struct ldma_work *work);
	uint64_t due_ns;    /* when its delay is over, or when it was submitted */
	uint64_t queued_ns; /* when run is called: how long it has waited, without its delay */
};

/* Work in line. Without a reserve there is one lane, for all. */
struct ldma_work_queue {
	struct {
		struct ldma_work *head, **tail;
	} lanes[LDMA_WORK_LANES];
	enum ldma_work_lane turn; /* the lane that is next, if both have work */
};

struct ldma_workers {
	pthread_mutex_t lock;
	pthread_cond_t has_work, has_control;
	bool has_reserve;
	struct ldma_work_queue ready;
	struct ldma_work *delayed; /* by due_ns */
	struct ldma_work *latest;  /* the last of those */
	uint64_t delay_ns;         /* atomic */
	uint32_t width;            /* atomic; 0: any number */
	uint32_t in_store;
	struct ldma_work_queue outside; /* work that waits for width before it enters the store */
	bool is_stopping;
	bool has_timer; /* a thread waits for the first of delayed */
	uint32_t threads;
	uint32_t idle;                /* those that wait for any work */
	uint32_t queued, queued_most; /* atomic; of all queues */
	pthread_t ids[LDMA_WORKERS_MAX + 1];
};

/* Starts threads, 1 to LDMA_WORKERS_MAX, and with has_reserve one more. Returns 0 or an error of the system. */
int ldma_workers_start(struct ldma_workers *workers, uint32_t threads, bool has_reserve);

/* Runs what was submitted, without its delay, and ends the threads. Calling it a second time has no effect. */
void ldma_workers_stop(struct ldma_workers *workers);

/* Queues work: a worker calls its run once. */
void ldma_workers_submit(struct ldma_workers *workers, struct ldma_work *work);

void ldma_workers_set_delay(struct ldma_workers *workers, uint64_t delay_ns);

/* Sets how many pieces of work are in the store at a time; 0: any number. */
void ldma_workers_set_width(struct ldma_workers *workers, uint32_t width);

/* Returns whether the store is made slow: then work has to pass by the workers even if it would not block. */
static inline bool ldma_workers_are_slow(const struct ldma_workers *workers)
{
	return __atomic_load_n(&workers->delay_ns, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&workers->width, __ATOMIC_RELAXED);
}

#endif
