/* SPDX-License-Identifier: BSD-2-Clause */
/* How far apart two cores are: the round trip of one cache line between them, in ns.
 *
 *   core_distance CPU CPU
 *
 * A virtual machine's cores may be moved: 50 ns were seen (they share caches) and 400 ns (they do not) within minutes.
 * Everything that hands data from one to the other follows, by a factor of two and more. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TRIPS 100000

static _Alignas(64) atomic_int turn;

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

static void *answer(void *cpu)
{
	pin(*(int *)cpu);
	for (int i = 0; i < TRIPS; i++) {
		while (atomic_load(&turn) != 2 * i + 1)
			;
		atomic_store(&turn, 2 * i + 2);
	}
	return NULL;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_value(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	enum { BATCH = 100 };
	static uint64_t took_ns[TRIPS / BATCH];
	uint64_t start_ns = 0;
	pthread_t other;
	int cpu;

	if (argc != 3) {
		fprintf(stderr, "usage: core_distance CPU CPU\n");
		return 2;
	}
	pin(atoi(argv[1]));
	cpu = atoi(argv[2]);
	if (pthread_create(&other, NULL, answer, &cpu)) {
		perror("pthread_create");
		return 1;
	}
	for (int i = 0; i < TRIPS; i++) {
		if (i % BATCH == 0)
			start_ns = now_ns();
		atomic_store(&turn, 2 * i + 1);
		while (atomic_load(&turn) != 2 * i + 2)
			;
		if (i % BATCH == BATCH - 1)
			took_ns[i / BATCH] = now_ns() - start_ns;
	}
	pthread_join(other, NULL);
	qsort(took_ns, TRIPS / BATCH, sizeof(*took_ns), by_value);
	printf("%.0f ns\n", (double)took_ns[TRIPS / BATCH / 2] / BATCH);
	return 0;
}
