/* SPDX-License-Identifier: BSD-2-Clause */
/* Two listeners and a region hear of what really happens to memory: each hook, in the order that was promised. Then
 * listeners come and go, look and queue in threads while memory changes and the process forks. */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/hook_queue.h"
#include "memory/pager.h"

#define PAGE 4096u
#define PAGES 16u
#define SIZE (PAGES * PAGE)
#define HEARD 64
#define NEVER (UINT64_C(3600) * 1000000000) /* only when it is told to look */
#define FORKS 20

/* Where the system puts nothing by itself: nobody else gets what is unmapped there. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define APART (UINT64_C(1) << 38) /* one of few places that it allows */
#endif
#endif
#ifndef APART
#define APART (UINT64_C(1) << 45)
#endif

static struct heard {
	int who;
	struct ldma_memory_event event;
	uint64_t present; /* of the region's pages, at that moment */
} heard[HEARD];
static uint32_t heard_count;
static uint64_t present; /* of what the first listener heard last */
static struct ldma_paged *paged;
static uint8_t *memory;

/* In the gate, as all hooks. */
static void hear(void *arg, const struct ldma_memory_event *event)
{
	uint32_t at = __atomic_load_n(&heard_count, __ATOMIC_ACQUIRE);

	assert(at < HEARD);
	heard[at] = (struct heard){.who = (int)(intptr_t)arg, .event = *event};
	if (paged)
		heard[at].present = ldma_paged_present(paged);
	__atomic_store_n(&heard_count, at + 1, __ATOMIC_RELEASE);
}

static const struct ldma_hooks hooks = {
#define MEMORY_HOOK(name) .name = hear,
#include "memory/hooks.def"
};

static void *map(void *at, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0);
	void *mapped = mmap(at, length, PROT_READ | PROT_WRITE, flags, -1, 0);

	assert(mapped != MAP_FAILED && (!at || mapped == at));
	return mapped;
}

static void wait_for(uint32_t count)
{
	for (int i = 0; i < 10000 && __atomic_load_n(&heard_count, __ATOMIC_ACQUIRE) < count; i++)
		usleep(1000);
	assert(__atomic_load_n(&heard_count, __ATOMIC_ACQUIRE) == count);
}

/* But for the first ones. */
static void forget(uint32_t count)
{
	__atomic_store_n(&heard_count, count, __ATOMIC_RELEASE);
}

/* Both listeners heard of this, the first one first, and of nothing else. */
static void expect(enum ldma_hook hook, enum ldma_cause cause, uint32_t page, uint32_t pages)
{
	struct ldma_memory_event *first = &heard[0].event, *second = &heard[1].event;

	wait_for(2);
	if (hook == LDMA_HOOK_release) /* each is told its own */
		assert(second->number-- == first->number + 1);
	assert(heard[0].who == 1 && heard[1].who == 2);
	assert(first->hook == hook && first->cause == cause);
	assert(first->start == (uintptr_t)memory + page * PAGE);
	assert(first->end == first->start + pages * PAGE);
	assert(first->number && !memcmp(first, second, sizeof(*first)));
	present = heard[0].present;
	forget(0);
}

static void expect_nothing(void)
{
	ldma_memory_look();
	assert(!__atomic_load_n(&heard_count, __ATOMIC_ACQUIRE));
}

static void test_told_at_once(void)
{
	uint8_t *there = map(NULL, SIZE);
	struct ldma_pager_range ranges[8];
	uint64_t end;

	assert(!ldma_pager_prefetch(paged, 0, SIZE, true));
	ldma_memory_look();
	expect(LDMA_HOOK_update_range, LDMA_CAUSE_brought_in, 0, PAGES);

	/* The region is told first: its pages are not in its table any more when the others hear of it. */
	assert(!madvise(memory + PAGE, 2 * PAGE, MADV_DONTNEED));
	expect(LDMA_HOOK_invalidate_range, LDMA_CAUSE_removed, 1, 2);
	assert(present == PAGES - 2);
	assert(!madvise(memory + 3 * PAGE, PAGE, MADV_DONTNEED));
	expect(LDMA_HOOK_invalidate_page, LDMA_CAUSE_removed, 3, 1);
	assert(present == PAGES - 3);
	expect_nothing(); /* what was told is not found again */

	assert(!munmap(memory + 4 * PAGE, PAGE));
	expect(LDMA_HOOK_invalidate_page, LDMA_CAUSE_unmapped, 4, 1);
	assert(present == PAGES - 4);
	map(memory + 4 * PAGE, PAGE);
	assert(!ldma_pager_offer(paged, 4 * PAGE, PAGE));
	expect(LDMA_HOOK_update_page, LDMA_CAUSE_offered, 4, 1);
	expect_nothing();

	/* Moved away; the kernel also tells that it is not there any more. */
	assert(mremap(memory + 8 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		      there) == there);
	wait_for(4);
	assert(heard[0].event.to == (uintptr_t)there && heard[0].present == PAGES - 6);
	assert(heard[2].event.cause == LDMA_CAUSE_unmapped && heard[2].who == 1);
	forget(2);
	expect(LDMA_HOOK_invalidate_range, LDMA_CAUSE_remapped, 8, 2);
	/* And back: nobody watches it there, so it is found by looking. From then on it is watched again. */
	assert(mremap(there, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		      memory + 8 * PAGE) == memory + 8 * PAGE);
	ldma_memory_look();
	expect(LDMA_HOOK_update_range, LDMA_CAUSE_mapped, 8, 2);
	assert(!madvise(memory + 8 * PAGE, PAGE, MADV_DONTNEED));
	expect(LDMA_HOOK_invalidate_page, LDMA_CAUSE_removed, 8, 1);

	/* What was written: the first call makes it clean. */
	while (ldma_pager_sync(paged, 0, SIZE, ranges, 8, &end) > 0 && end < SIZE)
		;
	forget(0);
	memory[12 * PAGE] = 1;
	assert(ldma_pager_sync(paged, 0, SIZE, ranges, 8, &end) == 1);
	expect(LDMA_HOOK_sync_page, LDMA_CAUSE_taken, 12, 1);
	memset(memory + 12 * PAGE, 1, 3 * PAGE);
	assert(ldma_pager_sync(paged, 0, SIZE, ranges, 8, &end) == 1);
	expect(LDMA_HOOK_sync_range, LDMA_CAUSE_taken, 12, 3);
	assert(!munmap(there + 2 * PAGE, SIZE - 2 * PAGE));
}

static void test_found_by_looking(void)
{
	ldma_memory_look();
	forget(0);
	memset(memory, 1, SIZE);
	ldma_memory_look();
	forget(0);

	assert(!mprotect(memory + 2 * PAGE, 3 * PAGE, PROT_READ));
	ldma_memory_look();
	assert(heard[0].event.protection == PROT_READ);
	expect(LDMA_HOOK_change_protection, LDMA_CAUSE_protected, 2, 3);
	assert(!mprotect(memory + 2 * PAGE, 3 * PAGE, PROT_READ | PROT_WRITE));
	ldma_memory_look();
	expect(LDMA_HOOK_change_protection, LDMA_CAUSE_protected, 2, 3);

	assert(!madvise(memory + 6 * PAGE, PAGE, MADV_DONTNEED));
	expect(LDMA_HOOK_invalidate_page, LDMA_CAUSE_removed, 6, 1);
	memory[6 * PAGE] = 1;
	ldma_memory_look();
	expect(LDMA_HOOK_update_page, LDMA_CAUSE_brought_in, 6, 1);
	expect_nothing();
}

static void test_fork(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	assert(waitpid(child, NULL, 0) == child);
	expect(LDMA_HOOK_change_protection, LDMA_CAUSE_forked, 0, PAGES);
	ldma_memory_look();
	forget(0);
}

/* A listener without hooks for pages hears of pages by those for ranges; one without hooks hears nothing. */
static void test_missing_hooks(void)
{
	const struct ldma_hooks some = {.invalidate_range = hear}, none = {0};
	struct ldma_listener *third, *fourth;

	assert(!ldma_memory_listen(memory, PAGE, 0, &some, (void *)3, &third));
	assert(!ldma_memory_listen(memory, PAGE, 0, &none, (void *)4, &fourth));
	assert(!madvise(memory, 2 * PAGE, MADV_DONTNEED));
	wait_for(3);
	assert(heard[2].who == 3 && heard[2].event.hook == LDMA_HOOK_invalidate_range);
	assert(heard[2].event.end - heard[2].event.start == PAGE);
	assert(heard[2].event.number == heard[0].event.number);
	ldma_memory_unlisten(third);
	ldma_memory_unlisten(fourth);
	forget(2);
	expect(LDMA_HOOK_invalidate_range, LDMA_CAUSE_removed, 0, 2);
}

static void test_hooks(void)
{
	struct ldma_listener *listeners[2];

	memory = map((void *)APART, SIZE);
	for (intptr_t i = 0; i < 2; i++) /* the region comes later, but is told first */
		assert(!ldma_memory_listen(memory, SIZE, NEVER, &hooks, (void *)(i + 1),
					   &listeners[i]));
	assert(!ldma_pager_open(memory, SIZE, &paged));
	test_told_at_once();
	test_found_by_looking();
	test_fork();
	test_missing_hooks();
	ldma_pager_close(paged);
	paged = NULL;
	for (int i = 0; i < 2; i++)
		ldma_memory_unlisten(listeners[i]);
	expect(LDMA_HOOK_release, LDMA_CAUSE_closed, 0, PAGES);
	assert(!madvise(memory, SIZE, MADV_DONTNEED)); /* nobody hears of that */
	assert(!munmap(memory, SIZE));
	expect_nothing();
}

static void test_refusals(void)
{
	struct ldma_listener *listener;

	assert(ldma_memory_listen(NULL, PAGE, 0, &hooks, NULL, &listener) == -EINVAL);
	assert(ldma_memory_listen(memory, 0, 0, &hooks, NULL, &listener) == -EINVAL);
	assert(ldma_memory_listen(memory, SIZE, NEVER, &hooks, NULL, &listener) == -EINVAL);
	assert(!heard_count);
	ldma_memory_look(); /* at nothing */
	ldma_memory_exit();
}

static int told_exits;
static bool is_child;

/* Asked by AddressSanitizer at exit(), if it is there: the look for leaks takes a lock that another thread of the parent
 * may have held when the child was made. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return is_child;
}

static void tell_parent(void *arg, const struct ldma_memory_event *event)
{
	char who = (char)(intptr_t)arg;

	assert(event->cause == LDMA_CAUSE_exited && event->hook == LDMA_HOOK_release);
	assert(write(told_exits, &who, 1) == 1);
}

static void expect_child(const struct ldma_hooks *last, const char *expected)
{
	struct ldma_listener *listener;
	char told[8] = {0};
	int ends[2];
	pid_t child;

	assert(!pipe(ends));
	child = fork();
	if (!child) {
		is_child = true;
		told_exits = ends[1];
		for (const char *who = expected; *who; who++)
			assert(!ldma_memory_listen(memory, SIZE, *who == 'b' ? NEVER : 0, last,
						   (void *)(intptr_t)*who, &listener));
		exit(0);
	}
	assert(waitpid(child, NULL, 0) == child);
	close(ends[1]);
	assert(read(ends[0], told, sizeof(told)) == (ssize_t)strlen(expected));
	assert(!strcmp(told, expected));
	close(ends[0]);
}

/* exit() is told to all, in order; a child's is not told to its parent's listeners. */
static void test_exit(void)
{
	const struct ldma_hooks last = {.release = tell_parent};
	struct ldma_listener *listener;
	int ends[2];
	char told[8];

	memory = map(NULL, SIZE);
	expect_child(&last, "abc");
	assert(!pipe(ends));
	told_exits = ends[1];
	assert(!ldma_memory_listen(memory, SIZE, 0, &last, (void *)'p', &listener));
	expect_child(&last, "");
	ldma_memory_exit();
	ldma_memory_exit(); /* once is enough */
	ldma_memory_unlisten(listener);
	assert(read(ends[0], told, sizeof(told)) == 1 && told[0] == 'p');
	close(ends[0]);
	close(ends[1]);
	assert(!munmap(memory, SIZE));
}

static void test_full_queue(void)
{
	struct ldma_hook_queue *queue;
	struct ldma_queue_end ends[2];
	struct ldma_listener *listeners[2];
	struct ldma_queued got[8];

	memory = map(NULL, SIZE);
	assert(ldma_hook_queue_create(0, &queue) == -EINVAL);
	assert(!ldma_hook_queue_create(3, &queue));
	for (int i = 0; i < 2; i++) {
		ldma_hook_queue_attach(queue, &ends[i], (uint64_t)i, memory, SIZE);
		assert(!ldma_memory_listen(memory, SIZE, 0, &ldma_queue_hooks, &ends[i],
					   &listeners[i]));
	}
	for (int i = 0; i < 3; i++) /* room for one and a half of the three */
		assert(!madvise(memory + (uint32_t)i * PAGE, PAGE, MADV_DONTNEED));
	ldma_memory_look(); /* they have been told */
	ldma_memory_unlisten(listeners[0]);
	ldma_hook_queue_wait(queue);
	assert(ldma_hook_queue_take(queue, got, 4) == 4);
	assert(got[0].tag == 0 && got[1].tag == 1 && got[2].tag == 0);
	assert(got[0].event.number == got[1].event.number);
	assert(got[3].event.cause == LDMA_CAUSE_lost && got[3].tag == 0);
	/* Until all was told of what is lost, nothing else gets in. */
	assert(!madvise(memory, PAGE, MADV_DONTNEED));
	ldma_memory_look();
	assert(ldma_hook_queue_take(queue, got, 8) == 2);
	assert(got[0].event.hook == LDMA_HOOK_release && got[0].tag == 0);
	assert(got[1].event.cause == LDMA_CAUSE_lost && got[1].tag == 1);
	assert(got[1].event.hook == LDMA_HOOK_invalidate_range && got[1].event.lost == 3);
	assert(got[1].event.start == (uintptr_t)memory);
	assert(got[1].event.end == (uintptr_t)memory + SIZE);
	assert(!ldma_hook_queue_take(queue, got, 8));
	assert(ldma_queue_end_lost(&ends[0]) == 1 && ldma_queue_end_lost(&ends[1]) == 3);
	assert(!madvise(memory, PAGE, MADV_DONTNEED));
	ldma_memory_unlisten(listeners[1]);
	assert(ldma_hook_queue_take(queue, got, 8) == 2 && got[1].tag == 1);
	assert(got[0].event.cause == LDMA_CAUSE_removed);
	assert(got[1].event.hook == LDMA_HOOK_release);
	for (int i = 0; i < 2; i++)
		ldma_hook_queue_detach(&ends[i]);
	ldma_hook_queue_destroy(queue);
	ldma_hook_queue_destroy(NULL);
	assert(!munmap(memory, SIZE));
}

static bool is_over;
static uint32_t began;

/* Listeners that come and go, each with a queue, over the same memory. */
static void *come_and_go(void *arg)
{
	uint64_t period = (uintptr_t)arg % 2 ? 1000000 : 0;

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		struct ldma_hook_queue *queue;
		struct ldma_queue_end end;
		struct ldma_listener *listener;
		struct ldma_queued got[16];
		uint32_t count, releases = 0;
		uint64_t number = 0;

		assert(!ldma_hook_queue_create(16, &queue));
		ldma_hook_queue_attach(queue, &end, 7, memory, SIZE);
		assert(!ldma_memory_listen(memory, SIZE, period, &ldma_queue_hooks, &end,
					   &listener));
		__atomic_add_fetch(&began, 1, __ATOMIC_RELAXED);
		for (int i = 0; i < 10; i++) {
			usleep(500);
			ldma_memory_look();
			if (i == 9)
				ldma_memory_unlisten(listener);
			while ((count = ldma_hook_queue_take(queue, got, 16)))
				for (uint32_t j = 0; j < count; j++) {
					assert(got[j].tag == 7 && got[j].event.number > number);
					assert(!releases);
					number = got[j].event.number;
					releases += got[j].event.hook == LDMA_HOOK_release;
				}
		}
		assert(releases == 1);
		ldma_hook_queue_detach(&end);
		ldma_hook_queue_destroy(queue);
	}
	return NULL;
}

static void test_threads(void)
{
	pthread_t threads[3];

	memory = map(NULL, SIZE);
	for (uintptr_t i = 0; i < 3; i++)
		assert(!pthread_create(&threads[i], NULL, come_and_go, (void *)i));
	while (__atomic_load_n(&began, __ATOMIC_RELAXED) < 3)
		usleep(100);
	for (int i = 0; i < FORKS || __atomic_load_n(&began, __ATOMIC_RELAXED) < 100; i++) {
		pid_t child = i < FORKS ? fork() : 0;

		if (i < FORKS && !child)
			_exit(0);
		memset(memory, 1, SIZE);
		assert(!mprotect(memory, PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE));
		assert(!madvise(memory + PAGE, PAGE, MADV_DONTNEED));
		assert(!mprotect(memory, PAGE, PROT_READ | PROT_WRITE));
		if (i < FORKS)
			assert(waitpid(child, NULL, 0) == child);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert(!munmap(memory, SIZE));
}

int main(void)
{
	alarm(120);  /* a deadlock ends the test */
	test_exit(); /* while this is the only thread */
	test_hooks();
	test_refusals();
	test_full_queue();
	test_threads();
	return 0;
}
