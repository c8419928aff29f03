/* SPDX-License-Identifier: BSD-2-Clause */
/* Which bucket of a log-linear histogram counts a value. There are 2^bits buckets to each power of two, so a value is known
 * within one part in 2^bits of itself; values below 2^bits have a bucket each. Callers pass constants for `bits`. */
#ifndef LDMA_LOG_LINEAR_H
#define LDMA_LOG_LINEAR_H

#include <stdint.h>

static inline uint32_t ldma_log_linear_bucket(uint64_t value, uint32_t bits)
{
	uint32_t shift;

	if (value < UINT64_C(1) << bits)
		return (uint32_t)value;
	shift = (63 ^ (uint32_t)__builtin_clzll(value)) - bits;
	return ((shift + 1) << bits) + ((uint32_t)(value >> shift) & ((1u << bits) - 1));
}

/* The least value that counts there. */
static inline uint64_t ldma_log_linear_least(uint32_t bucket, uint32_t bits)
{
	uint32_t power = bucket >> bits;
	uint64_t step = bucket & ((1u << bits) - 1);

	return power ? ((UINT64_C(1) << bits) + step) << (power - 1) : step;
}

/* The middle of a bucket, where values are units of 2^unit_bits ns. */
static inline uint64_t ldma_log_linear_middle_ns(uint32_t bucket, uint32_t bits, uint32_t unit_bits)
{
	uint64_t least = ldma_log_linear_least(bucket, bits);

	return ((least + ldma_log_linear_least(bucket + 1, bits)) << unit_bits) / 2;
}

#endif
