/* SPDX-License-Identifier: BSD-2-Clause */
/* Pins that threads make and remove while the process forks: each child has none of them, takes none away, and can make
 * its own. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/pin.h"

#define PAGE 4096
#define USERS 4
#define PINS 1500 /* of each: more than one ring has room for */
#define FORKS 20
#define SKIPPED 77

static uint8_t *memory;
static bool is_over;

/* What the kernel says that this process has pinned, in KiB. */
static long pinned_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;

	assert(status);
	while (kib < 0 && fgets(line, sizeof(line), status))
		sscanf(line, "VmPin: %ld", &kib);
	fclose(status);
	return kib;
}

static void *use(void *arg)
{
	uint8_t *mine = memory + (size_t)(uintptr_t)arg * PINS * PAGE;
	static _Thread_local struct ldma_pin pins[PINS];

	do {
		for (uint32_t i = 0; i < PINS; i++)
			assert(!ldma_pin_add(mine + i * PAGE, PAGE, &pins[i]));
		for (uint32_t i = 0; i < PINS; i++) {
			ldma_pin_remove(&pins[i]);
			ldma_pin_remove(&pins[i]);
		}
	} while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED));
	return NULL;
}

static void be_a_child(struct ldma_pin *parents)
{
	struct ldma_pin own;

	alarm(60);
	assert(pinned_kib() == 0);
	ldma_pin_remove(parents);
	assert(!ldma_pin_add(memory, PAGE, &own));
	assert(pinned_kib() == PAGE / 1024);
	ldma_pin_remove(&own);
	assert(pinned_kib() == 0);
	_exit(0);
}

int main(void)
{
	pthread_t users[USERS];
	struct ldma_pin kept;
	int error, status;

	memory = mmap(NULL, (USERS * PINS + 1) * (size_t)PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(memory != MAP_FAILED);
	error = ldma_pin_add(memory + USERS * PINS * (size_t)PAGE, PAGE, &kept);
	if (error == -EPERM || error == -ENOSYS)
		return SKIPPED;
	assert(!error);
	for (uintptr_t i = 0; i < USERS; i++)
		assert(!pthread_create(&users[i], NULL, use, (void *)i));
	for (uint32_t i = 0; i < FORKS; i++) {
		pid_t child = fork();

		assert(child >= 0);
		if (!child)
			be_a_child(&kept);
		assert(waitpid(child, &status, 0) == child && status == 0);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < USERS; i++)
		assert(!pthread_join(users[i], NULL));
	assert(pinned_kib() == PAGE / 1024);
	ldma_pin_remove(&kept);
	assert(pinned_kib() == 0);
	return 0;
}
