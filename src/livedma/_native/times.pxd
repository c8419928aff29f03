"""storage/times.h."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "times.h" nogil:
    int LDMA_TIMES_BUCKETS
    struct ldma_times:
        uint64_t sum_ns
        uint64_t max_ns
        uint32_t count
        uint32_t *buckets
    struct ldma_times_summary:
        uint64_t count
        uint64_t sum_ns
        uint64_t p50_ns
        uint64_t p99_ns
        uint64_t max_ns
    uint64_t ldma_times_least_ns(uint32_t bucket)
    ldma_times_summary ldma_times_since(const ldma_times *before, const ldma_times *now)


cdef inline tuple summary(const ldma_times *before, const ldma_times *now):
    """What came between two looks: how many, their sum, half and 99 of 100 within, the longest."""
    cdef ldma_times_summary s = ldma_times_since(before, now)
    return s.count, s.sum_ns, s.p50_ns, s.p99_ns, s.max_ns
