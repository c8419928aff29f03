/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads for storage calls: a delay, a width, and what work is told of its wait. Nothing here depends on how fast it is. */
#include "base/lock.h"
#include "base/monotonic.h"
#include "nfs/workers.h"
#include "tests/base/expect.h"

#include <stddef.h>
#include <unistd.h>

#define JOBS 40
#define DELAY_NS UINT64_C(1000000)

struct job {
	struct ldma_work work; /* first */
	uint64_t submitted_ns, begun_ns;
};

static struct ldma_workers workers;
static struct job jobs[JOBS];
static uint32_t running, most, done, order[JOBS];
static struct ldma_lock lock;

static void run(struct ldma_work *work)
{
	struct job *job = (struct job *)work;

	job->begun_ns = ldma_now_ns();
	ldma_lock(&lock);
	most = ++running > most ? running : most;
	order[done] = (uint32_t)(job - jobs);
	ldma_unlock(&lock);
	usleep(200);
	ldma_lock(&lock);
	running--;
	__atomic_store_n(&done, done + 1, __ATOMIC_RELEASE);
	ldma_unlock(&lock);
}

static void submit_all(void)
{
	most = done = 0;
	for (uint32_t i = 0; i < JOBS; i++) {
		jobs[i].work.run = run;
		jobs[i].submitted_ns = ldma_now_ns();
		ldma_workers_submit(&workers, &jobs[i].work);
	}
}

static void await_all(void)
{
	while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < JOBS)
		usleep(100);
	EXPECT(!running);
}

/* What a job was told is no more than what it has waited. */
static void check_waits(uint64_t delay_ns)
{
	for (uint32_t i = 0; i < JOBS; i++) {
		uint64_t waited_ns = jobs[i].begun_ns - jobs[i].submitted_ns;

		EXPECT(waited_ns >= delay_ns);
		EXPECT(jobs[i].work.queued_ns <= waited_ns - delay_ns);
	}
}

static void test_without_limits_threads_are_the_limit(void)
{
	submit_all();
	await_all();
	EXPECT(most <= 4);
	check_waits(0);
}

/* One at a time, each after its delay and in the order in which they came; the time outside is told. */
static void test_a_width_of_one(void)
{
	ldma_workers_set_delay(&workers, DELAY_NS);
	ldma_workers_set_width(&workers, 1);
	EXPECT(ldma_workers_are_slow(&workers));
	submit_all();
	await_all();
	EXPECT(most == 1);
	check_waits(DELAY_NS);
	for (uint32_t i = 0; i < JOBS; i++)
		EXPECT(order[i] == i);
	for (uint32_t i = 1; i < JOBS; i++) {
		EXPECT(jobs[i].begun_ns >= jobs[i - 1].begun_ns + DELAY_NS);
		EXPECT(jobs[i].submitted_ns + jobs[i].work.queued_ns >= jobs[i - 1].begun_ns);
	}
}

/* Accesses that wait outside come in when it is widened, and all at once when there is no width any more. */
static void test_a_width_that_changes(void)
{
	ldma_workers_set_delay(&workers, 50 * DELAY_NS);
	ldma_workers_set_width(&workers, 1);
	submit_all();
	ldma_workers_set_width(&workers, 2);
	ldma_workers_set_delay(&workers, 0);
	ldma_workers_set_width(&workers, 0);
	await_all();
	EXPECT(!ldma_workers_are_slow(&workers));
}

static void test_stopping_runs_what_waits(void)
{
	ldma_workers_set_delay(&workers, UINT64_C(3600000000000));
	ldma_workers_set_width(&workers, 2);
	submit_all();
	ldma_workers_stop(&workers);
	EXPECT(done == JOBS && !workers.in_store && !workers.queued);
	ldma_workers_stop(&workers);
}

static void submit_lane(uint32_t first, uint32_t end, enum ldma_work_lane lane)
{
	for (uint32_t i = first; i < end; i++) {
		jobs[i].work.run = run;
		jobs[i].work.lane = lane;
		jobs[i].submitted_ns = ldma_now_ns();
		ldma_workers_submit(&workers, &jobs[i].work);
	}
}

static uint32_t place_of(uint32_t job)
{
	uint32_t place = 0;

	while (order[place] != job)
		place++;
	return place;
}

/* A slow store of width 1, before which data of a greedy client queues: control work that comes last is next but one with
 * a reserve, and the last without. */
static void test_control_work_in_a_slow_store(bool has_reserve)
{
	EXPECT(!ldma_workers_start(&workers, 2, has_reserve));
	ldma_workers_set_delay(&workers, DELAY_NS);
	ldma_workers_set_width(&workers, 1);
	most = done = 0;
	submit_lane(0, JOBS - 2, LDMA_WORK_DATA);
	submit_lane(JOBS - 2, JOBS, LDMA_WORK_CONTROL);
	await_all();
	for (uint32_t i = JOBS - 2; i < JOBS; i++)
		EXPECT(has_reserve ? place_of(i) < JOBS - 2 : place_of(i) == i);
	EXPECT(most == 1);
	for (uint32_t i = 1; i < JOBS - 2; i++)
		EXPECT(place_of(i) > place_of(i - 1)); /* the lanes take turns: data goes on, too */
	ldma_workers_stop(&workers);
}

static bool is_held;
static uint32_t holding;

static void hold(struct ldma_work *work)
{
	__atomic_add_fetch(&holding, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&is_held, __ATOMIC_ACQUIRE))
		usleep(100);
	run(work);
}

/* All threads are in a store that does not answer: control work is done nevertheless, and the data in line is not. */
static void test_all_threads_are_taken(uint64_t delay_ns)
{
	EXPECT(!ldma_workers_start(&workers, 2, true));
	ldma_workers_set_delay(&workers, delay_ns);
	__atomic_store_n(&is_held, true, __ATOMIC_RELEASE);
	most = done = holding = 0;
	for (uint32_t i = 0; i < JOBS; i++) {
		jobs[i].work.run = i < JOBS / 2 ? hold : run;
		jobs[i].work.lane = i < JOBS / 2 ? LDMA_WORK_DATA : LDMA_WORK_CONTROL;
		if (i == JOBS / 2)
			while (__atomic_load_n(&holding, __ATOMIC_RELAXED) < 2)
				usleep(100);
		ldma_workers_submit(&workers, &jobs[i].work);
	}
	while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < JOBS / 2)
		usleep(100);
	EXPECT(__atomic_load_n(&holding, __ATOMIC_RELAXED) == 2);
	for (uint32_t i = 0; i < JOBS / 2; i++)
		EXPECT(order[i] >= JOBS / 2);
	__atomic_store_n(&is_held, false, __ATOMIC_RELEASE);
	await_all();
	ldma_workers_stop(&workers);
}

int main(void)
{
	EXPECT(!ldma_workers_start(&workers, 4, false));
	test_without_limits_threads_are_the_limit();
	test_a_width_of_one();
	test_a_width_that_changes();
	test_stopping_runs_what_waits();
	test_control_work_in_a_slow_store(false);
	test_control_work_in_a_slow_store(true);
	test_all_threads_are_taken(0);
	test_all_threads_are_taken(DELAY_NS);
	for (int i = 0; i < JOBS; i++)
		jobs[i].work.lane = LDMA_WORK_DATA;
	EXPECT(!ldma_workers_start(&workers, 4, true));
	test_stopping_runs_what_waits();
	return 0;
}
