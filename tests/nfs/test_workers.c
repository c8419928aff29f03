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

/* Those who wait outside come in when it is widened, and all at once when there is no width any more. */
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

int main(void)
{
	EXPECT(!ldma_workers_start(&workers, 4));
	test_without_limits_threads_are_the_limit();
	test_a_width_of_one();
	test_a_width_that_changes();
	test_stopping_runs_what_waits();
	return 0;
}
