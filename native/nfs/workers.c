/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/workers.h"

#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/monotonic.h"

static void init_queue(struct ldma_work_queue *queue)
{
	for (int lane = 0; lane < LDMA_WORK_LANES; lane++)
		queue->lanes[lane].tail = &queue->lanes[lane].head;
}

static void append(struct ldma_work_queue *queue, struct ldma_work *work)
{
	work->next = NULL;
	*queue->lanes[work->lane].tail = work;
	queue->lanes[work->lane].tail = &work->next;
}

static bool has_work(const struct ldma_work_queue *queue)
{
	return queue->lanes[LDMA_WORK_DATA].head || queue->lanes[LDMA_WORK_CONTROL].head;
}

static struct ldma_work *take_from(struct ldma_work_queue *queue, enum ldma_work_lane lane)
{
	struct ldma_work *work = queue->lanes[lane].head;

	queue->lanes[lane].head = work->next;
	if (!queue->lanes[lane].head)
		queue->lanes[lane].tail = &queue->lanes[lane].head;
	return work;
}

/* Takes the next work, of which there is some; the lanes take turns. */
static struct ldma_work *take(struct ldma_work_queue *queue)
{
	enum ldma_work_lane lane = queue->turn;

	if (!queue->lanes[lane].head)
		lane = lane == LDMA_WORK_DATA ? LDMA_WORK_CONTROL : LDMA_WORK_DATA;
	queue->turn = lane == LDMA_WORK_DATA ? LDMA_WORK_CONTROL : LDMA_WORK_DATA;
	return take_from(queue, lane);
}

/* Wakes a thread for work that is ready, or to wait for work that is delayed. The thread that is kept for control work
 * does the latter only if all others are busy. */
static void wake(struct ldma_workers *workers)
{
	bool needs_timer = workers->delayed && !workers->has_timer;

	if (has_work(&workers->ready) || needs_timer)
		pthread_cond_signal(&workers->has_work);
	if (workers->ready.lanes[LDMA_WORK_CONTROL].head || (needs_timer && !workers->idle))
		pthread_cond_signal(&workers->has_control);
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
	wake(workers);
	if (workers->has_timer && workers->delayed == work) { /* it has to be set anew */
		pthread_cond_broadcast(&workers->has_work);
		pthread_cond_broadcast(&workers->has_control);
	}
}

static bool has_width(const struct ldma_workers *workers)
{
	uint32_t width = __atomic_load_n(&workers->width, __ATOMIC_RELAXED);

	return !width || workers->in_store < width || workers->is_stopping;
}

/* Lets in work that waits outside, as far as there is width for it. */
static void let_in(struct ldma_workers *workers)
{
	uint64_t now_ns = has_work(&workers->outside) ? ldma_now_ns() : 0;

	while (has_work(&workers->outside) && has_width(workers)) {
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

static void wait_for_work(struct ldma_workers *workers, bool only_control)
{
	pthread_cond_t *condition = only_control ? &workers->has_control : &workers->has_work;
	struct timespec until;

	workers->idle += !only_control;
	if (!workers->delayed || workers->has_timer) {
		pthread_cond_wait(condition, &workers->lock);
		workers->idle -= !only_control;
		return;
	}
	until.tv_sec = (time_t)(workers->delayed->due_ns / 1000000000);
	until.tv_nsec = (long)(workers->delayed->due_ns % 1000000000);
	workers->has_timer = true;
	pthread_cond_timedwait(condition, &workers->lock, &until);
	workers->has_timer = false;
	workers->idle -= !only_control;
}

/* Drops the capabilities of this thread only. */
static void drop_privileges(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	syscall(SYS_capset, &header, none);
}

/* Returns the next work for a thread, which waits for it; NULL: the workers stop, and there is none. The lock is held.
 */
static struct ldma_work *next_work(struct ldma_workers *workers, bool only_control)
{
	for (;;) {
		let_in(workers);
		move_due(workers);
		if (only_control && workers->ready.lanes[LDMA_WORK_CONTROL].head)
			return take_from(&workers->ready, LDMA_WORK_CONTROL);
		if (!only_control && has_work(&workers->ready))
			return take(&workers->ready);
		if (workers->is_stopping)
			return NULL;
		if (has_work(&workers->ready)) /* which is for others, and was due just now */
			pthread_cond_signal(&workers->has_work);
		wait_for_work(workers, only_control);
	}
}

static void serve(struct ldma_workers *workers, bool only_control)
{
	struct ldma_work *work;

	drop_privileges();
	pthread_mutex_lock(&workers->lock);
	while ((work = next_work(workers, only_control))) {
		uint64_t now_ns;

		workers->queued--;
		wake(workers);
		pthread_mutex_unlock(&workers->lock);
		now_ns = ldma_now_ns();
		work->queued_ns += now_ns > work->due_ns ? now_ns - work->due_ns : 0;
		work->run(work);
		pthread_mutex_lock(&workers->lock);
		workers->in_store--;
	}
	pthread_mutex_unlock(&workers->lock);
}

static void *serve_all(void *argument)
{
	serve(argument, false);
	return NULL;
}

static void *serve_control(void *argument)
{
	serve(argument, true);
	return NULL;
}

int ldma_workers_start(struct ldma_workers *workers, uint32_t threads, bool has_reserve)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int error = 0;

	*workers = (struct ldma_workers){0};
	workers->has_reserve = has_reserve;
	init_queue(&workers->ready);
	init_queue(&workers->outside);
	pthread_mutex_init(&workers->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&workers->has_work, &monotonic);
	pthread_cond_init(&workers->has_control, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sigfillset(&all); /* signals are for the program's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!error && workers->threads < threads + has_reserve) {
		error = pthread_create(&workers->ids[workers->threads], NULL,
				       workers->threads < threads ? serve_all : serve_control,
				       workers);
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
	pthread_cond_broadcast(&workers->has_control);
	pthread_mutex_unlock(&workers->lock);
	for (uint32_t i = 0; i < workers->threads; i++)
		pthread_join(workers->ids[i], NULL);
}

void ldma_workers_submit(struct ldma_workers *workers, struct ldma_work *work)
{
	uint64_t now_ns = ldma_now_ns();

	work->due_ns = now_ns;
	work->queued_ns = 0;
	if (!workers->has_reserve)
		work->lane = LDMA_WORK_DATA;
	pthread_mutex_lock(&workers->lock);
	if (workers->queued_most < ++workers->queued)
		workers->queued_most = workers->queued;
	if (has_work(&workers->outside) || !has_width(workers))
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
