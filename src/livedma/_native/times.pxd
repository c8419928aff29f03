# SPDX-License-Identifier: BSD-2-Clause
"""base/times.h."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "base/times.h" nogil:
    enum:
        LDMA_TIMES_BUCKETS
        LDMA_TIMES_BOUNDS
    uint64_t LDMA_TIMES_BOUND_NS(int i)
    struct ldma_times:
        uint64_t sum_ns
        uint64_t max_ns
        uint64_t count
        uint64_t *buckets
    struct ldma_times_summary:
        uint64_t count
        uint64_t sum_ns
        uint64_t p50_ns
        uint64_t p99_ns
        uint64_t max_ns
    void ldma_times_add(ldma_times *times, uint64_t ns)
    uint64_t ldma_times_least_ns(uint32_t bucket)
    ldma_times_summary ldma_times_since(const ldma_times *before, const ldma_times *now)
    void ldma_times_below(const ldma_times *times, uint64_t *ret)


cdef inline tuple summary(const ldma_times *before, const ldma_times *now):
    """Returns the times between two looks: (how many, their sum, half within, 99 of 100 within, the longest)."""
    cdef ldma_times_summary s = ldma_times_since(before, now)
    return s.count, s.sum_ns, s.p50_ns, s.p99_ns, s.max_ns


cdef inline list flat(const ldma_times *times):
    """Returns all times so far: how many took less than each of TIMES_BOUNDS_NS, how many there were, their sum."""
    cdef uint64_t below[LDMA_TIMES_BOUNDS]
    cdef int i
    ldma_times_below(times, below)
    ret = [below[i] for i in range(LDMA_TIMES_BOUNDS)]
    ret.append(times.count)
    ret.append(times.sum_ns)
    return ret
