# SPDX-License-Identifier: BSD-2-Clause
"""nfs/slots.h and nfs/changes.h, and their objects for other bindings."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from livedma._native.times cimport *

cdef extern from "base/bytes.h" nogil:
    uint64_t get64(const uint8_t *p)
    void put64(uint8_t *p, uint64_t v)

cdef extern from "base/lock.h" nogil:
    struct ldma_lock:
        pass
    void ldma_take "ldma_lock"(ldma_lock *lock)
    void ldma_unlock(ldma_lock *lock)

cdef extern from "nfs/slots.h" nogil:
    int LDMA_SLOTS_MAX, LDMA_SLOTS_SMALL, LDMA_SESSION_ID_BYTES
    struct ldma_slots_counters:
        uint64_t executed, replayed, delayed, uncached, false_retries, misordered, bad_slots
        uint64_t retired, reply_bytes, reads, read_bytes, writes, written_bytes, commits
    struct ldma_slots_account_t "ldma_slots_account":
        uint64_t operations, read_bytes, written_bytes, waited_ns, storage_ns
        ldma_times latency
    struct ldma_slots_took:
        uint64_t now_ns, read_bytes, written_bytes, waited_ns, storage_ns
        bint is_native
    struct ldma_slots:
        uint8_t *session_id
        uint64_t client
        uint32_t cache_bytes
        uint32_t status_flags, request_max, response_max
        ldma_lock lock
        uint32_t size, target, peak, executing
        bint is_closed
        uint64_t used_ns
        ldma_slots_counters counters
        ldma_slots_account_t account
    struct ldma_sequence:
        uint32_t slot, sequence, highest
        bint cache_this
        uint64_t fingerprint
    ldma_slots *ldma_slots_create(const uint8_t *session_id, uint64_t client, uint32_t slots,
                                  uint32_t cache_bytes)
    void ldma_slots_put(ldma_slots *slots)
    int ldma_slots_begin(ldma_slots *slots, const ldma_sequence *asked, uint64_t now_ns,
                         uint8_t **replay, uint32_t *length)
    bint ldma_slots_end(ldma_slots *slots, uint32_t slot, const ldma_slots_took *took,
                        const void *reply, uint32_t length)
    uint32_t ldma_slots_most(const ldma_slots_account_t *before, const ldma_slots_account_t *now)
    void ldma_slots_cancel(ldma_slots *slots, uint32_t slot)
    bint ldma_slots_is_executing(ldma_slots *slots, uint32_t slot)
    void ldma_slots_set_target(ldma_slots *slots, uint32_t target)
    void ldma_slots_bind(ldma_slots *slots, uint64_t connection)
    void ldma_slots_unbind(ldma_slots *slots, uint64_t connection)
    bint ldma_slots_is_bound(ldma_slots *slots, uint64_t connection)
    void ldma_slots_close(ldma_slots *slots)

cdef extern from "nfs/changes.h" nogil:
    struct ldma_changes:
        pass
    uint64_t ldma_changes_bump(ldma_changes *changes, uint64_t device, uint64_t inode,
                               uint64_t ctime_ns)
    uint64_t ldma_changes_value(ldma_changes *changes, uint64_t device, uint64_t inode,
                                uint64_t ctime_ns)

cdef extern from *:
    """
    #define load_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
    #define store_relaxed(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
    #define increase_relaxed(p) __atomic_add_fetch(p, 1, __ATOMIC_RELAXED)
    """
    uint32_t load_relaxed(uint32_t *p) nogil
    uint64_t load64_relaxed "load_relaxed"(uint64_t *p) nogil
    void store_relaxed(uint32_t *p, uint32_t v) nogil
    uint64_t increase_relaxed(uint64_t *p) nogil

cdef class SlotTable:
    cdef ldma_slots *c
    cdef int check_executing(self, uint32_t slot) except -1

cdef class Changes:
    cdef ldma_changes *c

cdef class WriteVerifier:
    cdef uint64_t c
