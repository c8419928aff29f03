# SPDX-License-Identifier: BSD-2-Clause
"""memory/mapped.h, and its buffers for other bindings."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from livedma._native.rdma cimport Engine, ProtectionDomain, ldma_iova, ldma_pd

cdef extern from "memory/mapped.h" nogil:
    struct ldma_table:
        pass
    struct ldma_window:
        uint64_t pieces
    struct ldma_mapped_config:
        uint32_t buffers
        uint32_t buffer_bytes
        uint64_t mapping_bytes
        uint64_t piece_bytes
        bint is_per_use
    struct ldma_mapped:
        ldma_window window
        uint8_t *memory
        uint64_t length
        uint64_t mappings
        uint64_t memory_ns
        uint64_t map_ns
        uint64_t unmap_ns
    struct ldma_mapped_times:
        uint64_t host_ns
        uint64_t device_ns
    int ldma_mapped_create(ldma_iova *iova, ldma_pd *pd, const ldma_mapped_config *config,
                           uint32_t random_key, ldma_mapped **ret)
    void ldma_mapped_unmap(ldma_mapped *mapped)
    void ldma_mapped_destroy(ldma_mapped *mapped)
    int ldma_mapped_receive(ldma_mapped **connections, uint32_t count, const void *data,
                            uint32_t length, uint64_t messages, ldma_mapped_times *ret)


cdef class Mapped:
    cdef ldma_mapped *c
    cdef Engine engine
    cdef ProtectionDomain domain
    cdef readonly uint64_t pieces
    cdef object __weakref__

    cdef ldma_mapped *live(self) except NULL
