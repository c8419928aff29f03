# SPDX-License-Identifier: BSD-2-Clause
"""Counts times of operations in a histogram, each to within 1/128 of its value."""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from livedma._native.latency cimport *


cdef class Latency:
    """Counts times in nanoseconds."""

    def add(self, uint64_t ns):
        ldma_latency_add(&self.c, ns)

    def merge(self, Latency other not None):
        """Adds all times of another histogram."""
        ldma_latency_merge(&self.c, &other.c)

    def clear(self):
        memset(&self.c, 0, sizeof(self.c))

    def quantile_ns(self, double part):
        """Returns the time within which that part of all ended: 0.99 is 99 of 100."""
        if not 0 <= part <= 1:
            raise ValueError("a part is between 0 and 1")
        return ldma_latency_quantile_ns(&self.c, part)

    @property
    def count(self):
        return self.c.count

    @property
    def sum_ns(self):
        return self.c.sum_ns

    @property
    def min_ns(self):
        return self.c.min_ns

    @property
    def max_ns(self):
        return self.c.max_ns
