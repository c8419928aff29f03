# SPDX-License-Identifier: BSD-2-Clause
"""base/histogram.h."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "base/histogram.h" nogil:
    int LDMA_HISTOGRAM_BUCKETS
    struct ldma_histogram:
        uint64_t count, sum_ns, max_ns
        uint64_t *buckets
    uint64_t ldma_histogram_least_ns(uint32_t bucket)


cdef inline tuple shown(const ldma_histogram *h):
    """Returns (count, sum, longest, [(least of a bucket, how many)]), all in ns."""
    buckets = [(ldma_histogram_least_ns(i), h.buckets[i])
               for i in range(LDMA_HISTOGRAM_BUCKETS) if h.buckets[i]]
    return h.count, h.sum_ns, h.max_ns, buckets
