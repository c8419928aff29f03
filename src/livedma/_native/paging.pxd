# SPDX-License-Identifier: BSD-2-Clause
# Paged regions, as the bindings see them. Contracts are in memory/paging.h.
from libc.stdint cimport uint32_t, uint64_t

from livedma._native.hooks cimport ldma_hooks, ldma_listener
from livedma._native.rdma cimport Engine, ProtectionDomain, ldma_iova, ldma_pd

cdef extern from *:
    """
    #include "memory/iova.h"
    #include "memory/paging.h"
    static const struct { const char *name; size_t offset; } ldma_paged_counter_names[] = {
    #define PAGED_COUNTER(name) {#name, offsetof(struct ldma_paged_counters, name)},
    #include "memory/paging.def"
    };
    #define LDMA_PAGED_COUNTER_COUNT                                                               \
        (sizeof(ldma_paged_counter_names) / sizeof(ldma_paged_counter_names[0]))
    """
    struct paged_counter_name:
        const char *name
        size_t offset
    const paged_counter_name *ldma_paged_counter_names
    size_t LDMA_PAGED_COUNTER_COUNT

cdef extern from "memory/paging.h" nogil:
    struct ldma_paged_counters:
        pass
    struct ldma_table:
        uint64_t count
    struct ldma_paging:
        pass
    struct ldma_paged:
        ldma_paging *paging
        ldma_table table
        ldma_paged_counters counters
    struct ldma_fault:
        ldma_paged *paged
        uint64_t first
        uint32_t count
        bint is_write
    uint64_t LDMA_PAGE
    void ldma_paging_init(ldma_paging *paging, const void *ops)
    void ldma_paging_enter(ldma_paging *paging)
    void ldma_paging_leave(ldma_paging *paging)
    bint ldma_paging_take_fault(ldma_paging *paging, ldma_fault *ret)
    int ldma_paged_init(ldma_paged *paged, ldma_paging *paging, void *memory, uint64_t length)
    void ldma_paged_resolve(const ldma_fault *fault, uint32_t filled)
    void ldma_paged_release(ldma_paged *paged)
    void ldma_paged_destroy(ldma_paged *paged)
    void ldma_paged_invalidate_range(ldma_paged *paged, uint64_t offset, uint64_t length)
    void ldma_paged_unmap_range(ldma_paged *paged, uint64_t offset, uint64_t length)
    void ldma_paged_offer_range(ldma_paged *paged, uint64_t offset, uint64_t length)
    void ldma_paged_update_range(ldma_paged *paged, uint64_t offset, uint64_t length,
                                 bint is_writable)
    uint64_t ldma_paged_present(const ldma_paged *paged)

cdef extern from "memory/pager.h" nogil:
    struct ldma_pager_range:
        uint64_t offset
        uint64_t length
    int ldma_pager_open(void *memory, uint64_t length, ldma_paged **ret)
    void ldma_pager_close(ldma_paged *paged)
    void ldma_pager_hold(ldma_paged *paged)
    void ldma_pager_drop(ldma_paged *paged)
    int ldma_pager_prefetch(ldma_paged *paged, uint64_t offset, uint64_t length, bint is_write)
    int ldma_pager_offer(ldma_paged *paged, uint64_t offset, uint64_t length)
    long ldma_pager_sync(ldma_paged *paged, uint64_t offset, uint64_t length,
                         ldma_pager_range *ret, uint32_t count, uint64_t *ret_end)

cdef extern from "memory/vanishing.h" nogil:
    bint LDMA_VANISHING_ATOMICS

cdef extern from "memory/iova.h" nogil:
    int ldma_iova_register_paged(ldma_iova *iova, ldma_pd *pd, ldma_paged *paged, uint64_t va,
                                 uint32_t access, uint32_t random_key)

# The process's pager is in this extension; these are its calls for others (memory/hooks.h).
cdef int memory_listen(void *memory, uint64_t length, uint64_t period_ns, const ldma_hooks *hooks,
                       void *arg, ldma_listener **ret) noexcept nogil
cdef void memory_unlisten(ldma_listener *listener) noexcept nogil
cdef void memory_look() noexcept nogil
cdef void memory_exit() noexcept nogil


cdef class Paged:
    cdef Engine engine
    cdef ProtectionDomain domain
    cdef ldma_paged *c
    cdef Py_buffer view
    cdef bint has_view
    cdef readonly uint32_t key
    cdef readonly uint64_t va
    cdef readonly uint64_t length
    cdef object __weakref__

    cdef int offer(self, Engine engine, ProtectionDomain domain, access, va) except -1
    cdef int take_buffer(self, buffer) except -1
    cdef int withdraw(self) except -1
    cdef void give_up(self) noexcept
    cdef ldma_paged *live(self) except NULL
    cdef int check_range(self, uint64_t offset, uint64_t length) except -1
