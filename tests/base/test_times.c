/* SPDX-License-Identifier: BSD-2-Clause */
/* Times between two looks: what a histogram says against sorted values. */
#include "base/times.h"
#include "tests/base/expect.h"

#include <stdbool.h>
#include <string.h>

#define VALUES 5000

static struct ldma_times times;

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Any magnitude, and any value of it. */
static uint64_t some_time(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 24 >> (*state >> 8) % 36;
}

static bool is_near(uint64_t said, uint64_t true_ns)
{
	uint64_t apart = said > true_ns ? said - true_ns : true_ns - said;

	return apart <= true_ns / 32 + 16;
}

static void test_buckets_are_without_gaps(void)
{
	for (uint32_t i = 0; i + 1 < LDMA_TIMES_BUCKETS; i++) {
		uint64_t next = ldma_times_least_ns(i + 1);

		EXPECT(ldma_times_bucket(ldma_times_least_ns(i)) == i);
		EXPECT(ldma_times_bucket(next - 1) == i && ldma_times_bucket(next) == i + 1);
	}
	EXPECT(ldma_times_bucket(UINT64_MAX) == LDMA_TIMES_BUCKETS - 1);
	EXPECT(ldma_times_least_ns(LDMA_TIMES_BUCKETS - 1) > UINT64_C(30000000000));
}

static void test_what_came_between_two_looks(void)
{
	static struct ldma_times before;
	uint64_t values[VALUES], state = 1, sum = 0;
	struct ldma_times_summary seen;

	for (uint32_t i = 0; i < 1000; i++) /* long before */
		ldma_times_add(&times, UINT64_C(1) << 34);
	for (uint32_t count = 1; count <= VALUES; count = 3 * count + 1) {
		before = times;
		sum = 0;
		for (uint32_t i = 0; i < count; i++) {
			values[i] = some_time(&state) % (UINT64_C(1) << 33);
			sum += values[i];
			ldma_times_add(&times, values[i]);
		}
		qsort(values, count, sizeof(*values), compare);
		seen = ldma_times_since(&before, &times);
		EXPECT(seen.count == count && seen.sum_ns == sum);
		EXPECT(is_near(seen.p50_ns, values[(count + 1) / 2 - 1]));
		EXPECT(is_near(seen.p99_ns, values[(count * 99 + 99) / 100 - 1]));
		EXPECT(seen.max_ns >= values[count - 1]);
		EXPECT(seen.max_ns <= values[count - 1] + values[count - 1] / 16 + 16);
		EXPECT(seen.p50_ns <= seen.p99_ns && seen.p99_ns <= seen.max_ns);
	}
}

static void test_the_longest_of_all_is_exact(void)
{
	struct ldma_times before = times;
	struct ldma_times_summary seen;

	ldma_times_add(&times, (UINT64_C(1) << 34) + 12345);
	seen = ldma_times_since(&before, &times);
	EXPECT(seen.count == 1 && seen.max_ns == (UINT64_C(1) << 34) + 12345);
	EXPECT(seen.p99_ns <= seen.max_ns && is_near(seen.p99_ns, seen.max_ns));
}

static void test_nothing_came(void)
{
	struct ldma_times_summary seen = ldma_times_since(&times, &times), none = {0};

	EXPECT(!memcmp(&seen, &none, sizeof(none)));
}

static void test_counters_do_not_wrap(void)
{
	static struct ldma_times before;
	uint64_t below[LDMA_TIMES_BOUNDS];

	memset(&times, 0, sizeof(times));
	times.count = times.buckets[ldma_times_bucket(1000)] = UINT32_MAX - 1;
	before = times;
	for (uint32_t i = 0; i < 4; i++)
		ldma_times_add(&times, 1000);
	EXPECT(times.count == UINT64_C(0x100000002));
	EXPECT(ldma_times_since(&before, &times).count == 4);
	EXPECT(is_near(ldma_times_since(&before, &times).p50_ns, 1000));
	ldma_times_below(&times, below);
	EXPECT(below[0] == times.count);
}

static void test_what_is_below_a_bound_is_exact(void)
{
	uint64_t below[LDMA_TIMES_BOUNDS], values[VALUES], state = 7;

	memset(&times, 0, sizeof(times));
	for (uint32_t i = 0; i < LDMA_TIMES_BOUNDS; i++) {
		EXPECT(ldma_times_least_ns(ldma_times_bucket(LDMA_TIMES_BOUND_NS(i))) ==
		       LDMA_TIMES_BOUND_NS(i));
		values[3 * i] = LDMA_TIMES_BOUND_NS(i) - 1;
		values[3 * i + 1] = LDMA_TIMES_BOUND_NS(i);
		values[3 * i + 2] = LDMA_TIMES_BOUND_NS(i) + 1;
	}
	for (uint32_t i = 3 * LDMA_TIMES_BOUNDS; i < VALUES; i++)
		values[i] = some_time(&state);
	for (uint32_t i = 0; i < VALUES; i++)
		ldma_times_add(&times, values[i]);
	ldma_times_below(&times, below);
	for (uint32_t i = 0; i < LDMA_TIMES_BOUNDS; i++) {
		uint64_t count = 0;

		for (uint32_t k = 0; k < VALUES; k++)
			count += values[k] < LDMA_TIMES_BOUND_NS(i);
		EXPECT(below[i] == count);
	}
}

int main(void)
{
	test_buckets_are_without_gaps();
	test_what_came_between_two_looks();
	test_the_longest_of_all_is_exact();
	test_nothing_came();
	test_counters_do_not_wrap();
	test_what_is_below_a_bound_is_exact();
	return 0;
}
