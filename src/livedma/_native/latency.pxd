# SPDX-License-Identifier: BSD-2-Clause
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "load/latency.h" nogil:
    struct ldma_latency:
        uint64_t count
        uint64_t sum_ns
        uint64_t min_ns
        uint64_t max_ns
    void ldma_latency_add(ldma_latency *latency, uint64_t ns)
    uint64_t ldma_latency_quantile_ns(const ldma_latency *latency, double part)
    void ldma_latency_merge(ldma_latency *into, const ldma_latency *source)


cdef class Latency:
    cdef ldma_latency c
