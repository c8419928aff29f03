/* Threads for storage calls that may block, and the queue before them.
 *
 * They have no privileges (capabilities): what they are given is open already, and is not to be used as root would.
 *
 * A slow store can be had for the lab. With a delay each piece of work waits that long before a thread takes it, and none is
 * occupied meanwhile. With a width no more than so many are between the begin of their delay and their end, and the
 * others queue. Any thread may use it. */
#ifndef LDMA_WORKERS_H
#define LDMA_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define LDMA_WORKERS_MAX 64

struct ldma_work {
	struct ldma_work *next;
	void (*run)(struct ldma_work *work);
	uint64_t due_ns;    /* the workers': when its delay is over, or when it was submitted */
	uint64_t queued_ns; /* as run is called: how long it has waited, less its delay */
};

struct ldma_work_queue {
	struct ldma_work *head, **tail;
};

struct ldma_workers {
	pthread_mutex_t lock;
	pthread_cond_t has_work;
	struct ldma_work_queue ready;
	struct ldma_work *delayed; /* by due_ns */
	struct ldma_work *latest;  /* the last of those */
	uint64_t delay_ns;         /* atomic */
	uint32_t width;            /* atomic; 0: any number */
	uint32_t in_store;
	struct ldma_work_queue outside; /* of the store, for want of width */
	bool is_stopping;
	bool has_timer; /* somebody waits for the first of delayed */
	uint32_t threads;
	uint32_t queued, queued_most; /* atomic; of all queues */
	pthread_t ids[LDMA_WORKERS_MAX];
};

/* 0 or an error of the system's. threads: 1 to LDMA_WORKERS_MAX. */
int ldma_workers_start(struct ldma_workers *workers, uint32_t threads);

/* What was submitted is run first, without its delay. Once more it does nothing. */
void ldma_workers_stop(struct ldma_workers *workers);

/* run is called once, by a worker. */
void ldma_workers_submit(struct ldma_workers *workers, struct ldma_work *work);

void ldma_workers_set_delay(struct ldma_workers *workers, uint64_t delay_ns);

/* 0: any number at a time. */
void ldma_workers_set_width(struct ldma_workers *workers, uint32_t width);

/* Whether work has to pass by here though it would not block. */
static inline bool ldma_workers_are_slow(const struct ldma_workers *workers)
{
	return __atomic_load_n(&workers->delay_ns, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&workers->width, __ATOMIC_RELAXED);
}

#endif
