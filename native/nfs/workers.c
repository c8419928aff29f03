/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/workers.h"

#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/monotonic.h"

static void append(struct ldma_work_queue *queue, struct ldma_work *work)
{
	work->next = NULL;
	*queue->tail = work;
	queue->tail = &work->next;
}

static struct ldma_work *take(struct ldma_work_queue *queue)
{
	struct ldma_work *work = queue->head;

	queue->head = work->next;
	if (!queue->head)
		queue->tail = &queue->head;
	return work;
}

/* Inserts work by its due time: nearly always at the end, unless the delay was lowered. */
static void insert_delayed(struct ldma_workers *workers, struct ldma_work *work)
{
	struct ldma_work **link = &workers->delayed;

	if (workers->delayed && workers->latest->due_ns <= work->due_ns)
		link = &workers->latest->next;
	while (*link && (*link)->due_ns <= work->due_ns)
		link = &(*link)->next;
	work->next = *link;
	*link = work;
	if (!work->next)
		workers->latest = work;
}

/* Lets work into the store, where its delay begins. */
static void enter(struct ldma_workers *workers, struct ldma_work *work, uint64_t now_ns)
{
	uint64_t delay_ns = __atomic_load_n(&workers->delay_ns, __ATOMIC_RELAXED);

	workers->in_store++;
	work->due_ns = now_ns + delay_ns;
	if (delay_ns)
		insert_delayed(workers, work);
	else
		append(&workers->ready, work);
	if (!delay_ns || !workers->has_timer)
		pthread_cond_signal(&workers->has_work);
	else if (workers->delayed == work) /* the timer has to be set anew */
		pthread_cond_broadcast(&workers->has_work);
}

static bool has_width(const struct ldma_workers *workers)
{
	uint32_t width = __atomic_load_n(&workers->width, __ATOMIC_RELAXED);

	return !width || workers->in_store < width || workers->is_stopping;
}

/* Lets in work that waits outside, as far as there is width for it. */
static void let_in(struct ldma_workers *workers)
{
	uint64_t now_ns = workers->outside.head ? ldma_now_ns() : 0;

	while (workers->outside.head && has_width(workers)) {
		struct ldma_work *work = take(&workers->outside);

		work->queued_ns = now_ns - work->due_ns;
		enter(workers, work, now_ns);
	}
}

static void move_due(struct ldma_workers *workers)
{
	uint64_t now_ns = workers->delayed ? ldma_now_ns() : 0;

	while (workers->delayed && (workers->is_stopping || workers->delayed->due_ns <= now_ns)) {
		struct ldma_work *work = workers->delayed;

		workers->delayed = work->next;
		append(&workers->ready, work);
	}
}

static void wait_for_work(struct ldma_workers *workers)
{
	struct timespec until;

	if (!workers->delayed || workers->has_timer) {
		pthread_cond_wait(&workers->has_work, &workers->lock);
		return;
	}
	until.tv_sec = (time_t)(workers->delayed->due_ns / 1000000000);
	until.tv_nsec = (long)(workers->delayed->due_ns % 1000000000);
	workers->has_timer = true;
	pthread_cond_timedwait(&workers->has_work, &workers->lock, &until);
	workers->has_timer = false;
}

/* Drops the capabilities of this thread only. */
static void drop_privileges(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	syscall(SYS_capset, &header, none);
}

static void *serve(void *argument)
{
	struct ldma_workers *workers = argument;

	drop_privileges();
	pthread_mutex_lock(&workers->lock);
	for (;;) {
		struct ldma_work *work;
		uint64_t now_ns;

		let_in(workers);
		move_due(workers);
		if (!workers->ready.head) {
			if (workers->is_stopping)
				break;
			wait_for_work(workers);
			continue;
		}
		work = take(&workers->ready);
		workers->queued--;
		if (workers->ready.head || (workers->delayed && !workers->has_timer))
			pthread_cond_signal(&workers->has_work);
		pthread_mutex_unlock(&workers->lock);
		now_ns = ldma_now_ns();
		work->queued_ns += now_ns > work->due_ns ? now_ns - work->due_ns : 0;
		work->run(work);
		pthread_mutex_lock(&workers->lock);
		workers->in_store--;
	}
	pthread_mutex_unlock(&workers->lock);
	return NULL;
}

int ldma_workers_start(struct ldma_workers *workers, uint32_t threads)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int error = 0;

	*workers = (struct ldma_workers){0};
	workers->ready.tail = &workers->ready.head;
	workers->outside.tail = &workers->outside.head;
	pthread_mutex_init(&workers->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&workers->has_work, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!error && workers->threads < threads) {
		error = pthread_create(&workers->ids[workers->threads], NULL, serve, workers);
		workers->threads += !error;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		ldma_workers_stop(workers);
	return -error;
}

void ldma_workers_stop(struct ldma_workers *workers)
{
	if (workers->is_stopping)
		return;
	pthread_mutex_lock(&workers->lock);
	workers->is_stopping = true;
	pthread_cond_broadcast(&workers->has_work);
	pthread_mutex_unlock(&workers->lock);
	for (uint32_t i = 0; i < workers->threads; i++)
		pthread_join(workers->ids[i], NULL);
}

void ldma_workers_submit(struct ldma_workers *workers, struct ldma_work *work)
{
	uint64_t now_ns = ldma_now_ns();

	work->due_ns = now_ns;
	work->queued_ns = 0;
	pthread_mutex_lock(&workers->lock);
	if (workers->queued_most < ++workers->queued)
		workers->queued_most = workers->queued;
	if (workers->outside.head || !has_width(workers))
		append(&workers->outside, work);
	else
		enter(workers, work, now_ns);
	pthread_mutex_unlock(&workers->lock);
}

void ldma_workers_set_delay(struct ldma_workers *workers, uint64_t delay_ns)
{
	__atomic_store_n(&workers->delay_ns, delay_ns, __ATOMIC_RELAXED);
}

void ldma_workers_set_width(struct ldma_workers *workers, uint32_t width)
{
	__atomic_store_n(&workers->width, width, __ATOMIC_RELAXED);
	pthread_mutex_lock(&workers->lock);
	let_in(workers);
	pthread_mutex_unlock(&workers->lock);
}
