from livedma._native.packet cimport ldma_batch

cdef class Batch:
    cdef ldma_batch *c
    cdef object keep  # whoever owns the bytes that the packets point into
