# SPDX-License-Identifier: BSD-2-Clause
from livedma._native.packet cimport ldma_batch, uint64_t

cdef class Batch:
    cdef ldma_batch *c
    cdef object keep  # the owner of the bytes that the packets point into
    cdef bytearray lines(self, uint64_t first, bint as_text, dict inside, bint color,
                         uint64_t start_ns)
