/* SPDX-License-Identifier: BSD-2-Clause */
/* A region on demand in a storm: peers and the device itself use it while the program unmaps, moves, empties and protects
 * its memory and has children. Nobody may see a byte that was not written there, write to memory that is not the region's,
 * or wait for ever. LIVEDMA_STORM_SECONDS: how long. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/pager.h"
#include "memory/vanishing.h"
#include "tests/port/ends.h"
#include "tests/port/slow_listener.h"

#define PAGE 4096u
#define USERS 2
#define SLICE 24u /* pages of each user */
#define PAGES (USERS * SLICE)
#define MAX_BYTES (6 * PAGE)
#define CANARY 0xc0ffee0000000000u

static struct ldma_port *near_port, *far_port;
static struct ldma_paged *paged;
static struct ldma_pd *far_pd, *near_pd;
static uint8_t *memory;
static const uint32_t key = 4711, near_key = 4712;
static bool is_over;
/* Of each page: how often something happened to it; odd while it does. */
static uint32_t troubles[PAGES];
static uint64_t near_memory[USERS][2][MAX_BYTES / 8];

struct user {
	pthread_t thread;
	uint32_t number, generation;
	unsigned seed;
	struct end near, far; /* the region is at the far end */
	uint64_t done, refused;
};

/* What a word of the region may hold: where it is, and when it was written. */
static uint64_t word(uint32_t index, uint32_t generation)
{
	return (uint64_t)index << 32 | generation;
}

static void connect_user(struct user *user)
{
	struct end *ends[] = {&user->near, &user->far};

	for (int i = 0; i < 2; i++) {
		ends[i]->cq = ldma_port_create_cq(ends[i]->port, 64);
		ends[i]->qp = create_qp(ends[i]->port, ends[i]->pd, ends[i]->cq);
	}
	connect_end(&user->near, "127.0.0.2", user->far.qp->number);
	connect_end(&user->far, "127.0.0.1", user->near.qp->number);
}

static void disconnect_user(struct user *user)
{
	struct end *ends[] = {&user->near, &user->far};

	for (int i = 0; i < 2; i++) {
		ldma_port_lock(ends[i]->port);
		ldma_device_destroy_qp(ends[i]->qp);
		ldma_port_unlock(ends[i]->port);
		assert(!ldma_port_destroy_cq(ends[i]->port, ends[i]->cq));
	}
}

/* Whether it succeeded; other reasons than the memory's are mistakes. */
static bool finish(struct end *end)
{
	struct ldma_wc wc;

	assert(ldma_port_wait(end->port, end->cq, 0, PATIENCE_NS) == 1);
	assert(ldma_cq_poll(end->cq, &wc, 1) == 1);
	if (wc.status && wc.status != LDMA_WC_REM_ACCESS_ERR && wc.status != LDMA_WC_REM_OP_ERR &&
	    wc.status != LDMA_WC_LOC_PROT_ERR)
		fprintf(stderr, "status %u\n", wc.status);
	assert(wc.status == LDMA_WC_SUCCESS || wc.status == LDMA_WC_REM_ACCESS_ERR ||
	       wc.status == LDMA_WC_REM_OP_ERR || wc.status == LDMA_WC_LOC_PROT_ERR);
	return !wc.status;
}

/* Brings the words to the region: by a WRITE of the peer's, a READ of its own or a SEND. */
static bool put(struct user *user, uint64_t local, uint64_t va, uint32_t length)
{
	switch (rand_r(&user->seed) % 3) {
	case 0:
		post_send(&user->near, LDMA_WR_RDMA_WRITE, 1, local, length, va, key);
		return finish(&user->near);
	case 1:
		post_send(&user->far, LDMA_WR_RDMA_READ, 1, va, length, local, near_key);
		return finish(&user->far);
	}
	post_recv(&user->far, 2, va, length);
	post_send(&user->near, LDMA_WR_SEND, 1, local, length, 0, 0);
	return finish(&user->near) && finish(&user->far);
}

/* And back. */
static bool get(struct user *user, uint64_t local, uint64_t va, uint32_t length)
{
	if (rand_r(&user->seed) % 2) {
		post_send(&user->near, LDMA_WR_RDMA_READ, 1, local, length, va, key);
		return finish(&user->near);
	}
	post_send(&user->far, LDMA_WR_RDMA_WRITE, 1, va, length, local, near_key);
	return finish(&user->far);
}

static void check_words(const uint64_t *words, uint32_t first, uint32_t count, uint32_t generation,
			const uint32_t *before)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t index = first + i, page = index / (PAGE / 8);
		uint32_t trouble = __atomic_load_n(&troubles[page], __ATOMIC_SEQ_CST);
		bool is_calm = trouble == before[page] && !(trouble & 1);
		bool is_known = !words[i] || (words[i] >> 32 == index && (uint32_t)words[i] &&
					      (uint32_t)words[i] <= generation);

		if (!is_known || (is_calm && words[i] != word(index, generation)))
			fprintf(stderr, "word %u is %lx in generation %u, calm: %d\n", index,
				(unsigned long)words[i], generation, is_calm);
		assert(is_known);
		assert(!is_calm || words[i] == word(index, generation));
	}
}

static void round_trip(struct user *user)
{
	uint64_t *out = near_memory[user->number][0], *in = near_memory[user->number][1];
	uint32_t count = 1 + (uint32_t)rand_r(&user->seed) % (MAX_BYTES / 8);
	uint32_t words = SLICE * PAGE / 8, base = user->number * words;
	uint32_t first = base + (uint32_t)rand_r(&user->seed) % (words - count);
	uint32_t before[PAGES], generation = ++user->generation;
	uint64_t va = (uint64_t)first * 8;
	uint64_t out_va = (uint64_t)((uint8_t *)out - (uint8_t *)near_memory);
	uint64_t in_va = (uint64_t)((uint8_t *)in - (uint8_t *)near_memory);

	for (uint32_t page = 0; page < PAGES; page++)
		before[page] = __atomic_load_n(&troubles[page], __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < count; i++)
		out[i] = word(first + i, generation);
	if (put(user, out_va, va, count * 8) && get(user, in_va, va, count * 8)) {
		check_words(in, first, count, generation, before);
		user->done++;
		return;
	}
	/* Refused: something has to have happened there. */
	bool was_calm = true;

	for (uint32_t page = first / (PAGE / 8); page <= (first + count - 1) / (PAGE / 8); page++)
		was_calm &= before[page] == __atomic_load_n(&troubles[page], __ATOMIC_SEQ_CST) &&
			    !(before[page] & 1);
	assert(!was_calm);
	user->refused++;
	disconnect_user(user);
	connect_user(user);
}

static void *use(void *arg)
{
	struct user *user = arg;

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		round_trip(user);
	return NULL;
}

static void *map(uint8_t *at, uint32_t pages, int protection)
{
	void *mapped = mmap(at, pages * PAGE, protection,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert(mapped == at);
	return mapped;
}

/* Where the system puts nothing by itself: another thread's memory would get in the way of what is unmapped. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define APART (UINT64_C(1) << 38) /* one of few places that it allows */
#endif
#endif
#ifndef APART
#define APART (UINT64_C(1) << 45)
#endif

/* Somebody else's memory, at an address that was the region's. */
static void be_somebody_else(uint8_t *at, uint32_t pages, unsigned *seed)
{
	uint64_t *words = map(at, pages, PROT_READ | PROT_WRITE);

	for (uint32_t i = 0; i < pages * PAGE / 8; i++)
		words[i] = CANARY + i;
	usleep((useconds_t)(rand_r(seed) % 300));
	for (uint32_t i = 0; i < pages * PAGE / 8; i++)
		assert(words[i] == CANARY + i);
	munmap(at, pages * PAGE);
}

static void make_trouble(unsigned *seed)
{
	uint32_t first = (uint32_t)rand_r(seed) % PAGES;
	uint32_t pages = 1 + (uint32_t)rand_r(seed) % 8;
	uint8_t *at = memory + first * PAGE, *moved;
	bool has_lock = rand_r(seed) % 4 == 0; /* of the device whose memory it is */

	if (pages > PAGES - first)
		pages = PAGES - first;
	for (uint32_t i = first; i < first + pages; i++)
		__atomic_add_fetch(&troubles[i], 1, __ATOMIC_SEQ_CST);
	if (has_lock)
		ldma_port_lock(far_port);
	switch (rand_r(seed) % 6) {
	case 0:
		assert(!madvise(at, pages * PAGE, MADV_DONTNEED));
		break;
	case 1:
		assert(!munmap(at, pages * PAGE));
		be_somebody_else(at, pages, seed);
		map(at, pages, PROT_READ | PROT_WRITE);
		assert(!ldma_pager_offer(paged, first * PAGE, pages * PAGE));
		break;
	case 2:
		moved = mremap(at, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
			       NULL);
		if (moved == MAP_FAILED) /* more than one mapping by now */
			break;
		if (moved != at)
			assert(!munmap(moved, pages * PAGE));
		assert(!ldma_pager_offer(paged, first * PAGE, pages * PAGE));
		break;
	case 3:
		assert(!mprotect(at, pages * PAGE, rand_r(seed) % 2 ? PROT_NONE : PROT_READ));
		usleep((useconds_t)(rand_r(seed) % 300));
		assert(!mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE));
		break;
	case 4: {
		pid_t child = fork();

		assert(child >= 0);
		if (!child) {
			at[0]++; /* its own copy */
			_exit(0);
		}
		assert(waitpid(child, NULL, 0) == child);
		break;
	}
	case 5:
		ldma_pager_prefetch(paged, first * PAGE, pages * PAGE, rand_r(seed) % 2);
		break;
	}
	if (has_lock)
		ldma_port_unlock(far_port);
	for (uint32_t i = first; i < first + pages; i++)
		__atomic_add_fetch(&troubles[i], 1, __ATOMIC_SEQ_CST);
}

static void *disturb(void *arg)
{
	unsigned seed = *(unsigned *)arg;

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		make_trouble(&seed);
		usleep((useconds_t)(rand_r(&seed) % 500));
	}
	return NULL;
}

/* Other regions come and go over the same memory. */
static void *overlap(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		static uint8_t buffer[8 * PAGE];
		struct ldma_paged *others[2];

		assert(!ldma_pager_open(buffer + 100, 5 * PAGE, &others[0]));
		assert(!ldma_pager_open(buffer + 2 * PAGE, 5 * PAGE, &others[1]));
		ldma_pager_prefetch(others[1], 0, 5 * PAGE, true);
		ldma_pager_close(others[0]);
		assert(!madvise(buffer + PAGE, PAGE, MADV_DONTNEED) || errno == EINVAL);
		ldma_pager_close(others[1]);
		usleep(1000);
	}
	return NULL;
}

static uint32_t descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	uint32_t count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* The pager's threads end when they can. */
static void expect_descriptors(uint32_t expected)
{
	for (int i = 0; i < 5000 && descriptors() != expected; i++)
		usleep(1000);
	assert(descriptors() == expected);
}

static void storm(unsigned seconds)
{
	struct user users[USERS] = {0};
	struct slow_listener slow;
	pthread_t disturber, other;
	unsigned seed = (unsigned)getpid();
	uint64_t done = 0, refused = 0;

	far_pd = ldma_pd_create();
	near_pd = ldma_pd_create();
	memory = map((uint8_t *)APART, PAGES, PROT_READ | PROT_WRITE);
	assert(!ldma_pager_open(memory, PAGES * PAGE, &paged));
	slow_listener_start(&slow, memory, PAGES * PAGE);
	assert(!ldma_iova_register_paged(&ldma_port_lock(far_port)->iova, far_pd, paged, 0, 0xf,
					 key));
	ldma_port_unlock(far_port);
	assert(!ldma_iova_register(&ldma_port_lock(near_port)->iova, near_pd, near_memory, 0,
				   sizeof(near_memory), 0xf, near_key));
	ldma_port_unlock(near_port);
	for (uint32_t i = 0; i < USERS; i++) {
		users[i] = (struct user){.number = i, .seed = seed + 10 + i};
		users[i].near = (struct end){.port = near_port, .pd = near_pd, .key = near_key};
		users[i].far = (struct end){.port = far_port, .pd = far_pd, .key = key};
		connect_user(&users[i]);
		assert(!pthread_create(&users[i].thread, NULL, use, &users[i]));
	}
	/* One disturber: two would unmap each other's memory, as no program may. */
	assert(!pthread_create(&disturber, NULL, disturb, &seed));
	assert(!pthread_create(&other, NULL, overlap, NULL));
	sleep(seconds);
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	pthread_join(disturber, NULL);
	pthread_join(other, NULL);
	for (uint32_t i = 0; i < USERS; i++) {
		pthread_join(users[i].thread, NULL);
		for (int calm = 0; calm < 20; calm++) /* now all of it has to be right */
			round_trip(&users[i]);
		disconnect_user(&users[i]);
		done += users[i].done;
		refused += users[i].refused;
	}
	printf("%lu round trips, %lu refused; %lu faults, %lu resolved, %lu failed, %lu vanished, "
	       "%lu invalidated\n",
	       (unsigned long)done, (unsigned long)refused, (unsigned long)paged->counters.faults,
	       (unsigned long)paged->counters.resolved, (unsigned long)paged->counters.failed,
	       (unsigned long)paged->counters.vanished,
	       (unsigned long)paged->counters.invalidations);
	assert(done && paged->counters.faults && paged->counters.invalidations);
	ldma_iova_deregister(&ldma_port_lock(far_port)->iova, key);
	ldma_port_unlock(far_port);
	ldma_iova_deregister(&ldma_port_lock(near_port)->iova, near_key);
	ldma_port_unlock(near_port);
	slow_listener_stop(&slow);
	ldma_pager_close(paged);
	assert(!munmap(memory, PAGES * PAGE));
	assert(!ldma_pd_destroy(far_pd) && !ldma_pd_destroy(near_pd));
}

/* Copies whose memory is not there fail and do nothing else, whatever the thread does with signals. */
static void *copy_nowhere(void *arg)
{
	uint8_t *gone = arg, buf[2 * PAGE] = {0};
	uint64_t expected = 0;
	bool is_done;

	for (int i = 0; i < 100; i++) {
		assert(!ldma_vanishing_load(buf, gone, PAGE));
		assert(!ldma_vanishing_store(gone, buf, PAGE));
		assert(!ldma_vanishing_store(gone - 100, buf, 200)); /* the page before is there */
		if (LDMA_VANISHING_ATOMICS)
			assert(!ldma_vanishing_compare_exchange((uint64_t *)gone, &expected, 1,
								&is_done));
	}
	assert(ldma_vanishing_load(buf, gone - PAGE, PAGE));
	assert(ldma_vanishing_store(gone - PAGE, buf, PAGE));
	return NULL;
}

static void *copy_nowhere_deaf(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	return copy_nowhere(arg);
}

static void test_copies(void)
{
	uint8_t *at =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *(*const ways[])(void *) = {copy_nowhere, copy_nowhere_deaf};

	assert(!mprotect(at + PAGE, PAGE, PROT_NONE));
	ldma_vanishing_start();
	for (int i = 0; i < 2; i++) {
		pthread_t thread;

		assert(!pthread_create(&thread, NULL, ways[i], at + PAGE));
		pthread_join(thread, NULL);
	}
	munmap(at, 2 * PAGE);
}

int main(void)
{
	const char *asked = getenv("LIVEDMA_STORM_SECONDS");
	unsigned seconds = asked ? (unsigned)atoi(asked) : 4;
	uint32_t before;

	alarm(seconds + 120); /* a deadlock ends the test */
	test_copies();
	near_port = open_port("127.0.0.1");
	far_port = open_port("127.0.0.2");
	before = descriptors();
	storm(seconds);
	expect_descriptors(before);
	ldma_port_close(near_port);
	ldma_port_close(far_port);
	return 0;
}
