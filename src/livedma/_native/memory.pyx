# SPDX-License-Identifier: BSD-2-Clause
"""Counts compaction and page migration by BPF. Contracts are in bpf/memory_session.h."""
from os import strerror
from typing import NamedTuple

from libc.stdint cimport uint32_t, uint64_t


cdef extern from "bpf/memory_counters.h" nogil:
    int LDMA_COMPACTION_SUCCESS, LDMA_COMPACTION_WHOLE_ZONE, LDMA_COMPACTION_CONTENDED
    int LDMA_COMPACTION_OTHER
    int LDMA_MIGRATION_COMPACTION, LDMA_MIGRATION_MEMORY_FAILURE, LDMA_MIGRATION_HOTPLUG
    int LDMA_MIGRATION_SYSCALL, LDMA_MIGRATION_MBIND, LDMA_MIGRATION_NUMA_BALANCING
    int LDMA_MIGRATION_CONTIGUOUS, LDMA_MIGRATION_LONGTERM_PIN, LDMA_MIGRATION_DEMOTION
    int LDMA_MIGRATION_DAMON, LDMA_MIGRATION_OTHER

    struct ldma_memory_counters:
        uint64_t compaction_begun
        uint64_t *compaction_ended
        uint64_t *migration_calls
        uint64_t *pages_moved
        uint64_t *pages_failed
        uint64_t huge_moved
        uint64_t huge_failed
        uint64_t huge_split

cdef extern from "bpf/memory_session.h" nogil:
    uint32_t MEMORY_COMPACTION_BEGIN, MEMORY_COMPACTION_END, MEMORY_MIGRATION

    struct memory_session:
        pass

    int memory_open(memory_session **ret)
    void memory_close(memory_session *session)
    uint32_t memory_attached(const memory_session *session)
    int memory_counters(memory_session *session, ldma_memory_counters *ret)


_TRACEPOINTS = {
    "mm_compaction_begin": MEMORY_COMPACTION_BEGIN,
    "mm_compaction_end": MEMORY_COMPACTION_END,
    "mm_migrate_pages": MEMORY_MIGRATION,
}
_ENDS = {
    "success": LDMA_COMPACTION_SUCCESS,
    "whole zone": LDMA_COMPACTION_WHOLE_ZONE,
    "contended": LDMA_COMPACTION_CONTENDED,
    "other": LDMA_COMPACTION_OTHER,
}
_REASONS = {
    "compaction": LDMA_MIGRATION_COMPACTION,
    "memory failure": LDMA_MIGRATION_MEMORY_FAILURE,
    "hotplug": LDMA_MIGRATION_HOTPLUG,
    "system call": LDMA_MIGRATION_SYSCALL,
    "mbind": LDMA_MIGRATION_MBIND,
    "NUMA balancing": LDMA_MIGRATION_NUMA_BALANCING,
    "contiguous range": LDMA_MIGRATION_CONTIGUOUS,
    "long-term pin": LDMA_MIGRATION_LONGTERM_PIN,
    "demotion": LDMA_MIGRATION_DEMOTION,
    "DAMON": LDMA_MIGRATION_DAMON,
    "other": LDMA_MIGRATION_OTHER,
}
_MODES = ("async", "sync light", "sync")


class MemoryCounters(NamedTuple):
    """Holds struct ldma_memory_counters."""

    compaction_begun: int
    compaction_ended: dict
    migration_calls: dict
    pages_moved: dict
    pages_failed: dict
    huge_moved: int
    huge_failed: int
    huge_split: int


cdef int check(int err) except -1:
    if err < 0:
        raise OSError(-err, strerror(-err))
    return err


cdef class MemorySession:
    """Counts from the moment it is made until it is closed."""

    cdef memory_session *c

    def __cinit__(self):
        cdef int err
        with nogil:
            err = memory_open(&self.c)
        check(err)

    def __dealloc__(self):
        memory_close(self.c)

    def close(self):
        """Ends the counting. Calling it again has no effect."""
        memory_close(self.c)
        self.c = NULL

    cdef memory_session *session(self) except NULL:
        if self.c == NULL:
            raise ValueError("the session is closed")
        return self.c

    def missing(self):
        """Returns the tracepoints that this kernel does not have."""
        cdef uint32_t attached = memory_attached(self.session())
        return [name for name, bit in _TRACEPOINTS.items() if not attached & bit]

    def counters(self):
        cdef ldma_memory_counters c
        check(memory_counters(self.session(), &c))
        return MemoryCounters(
            compaction_begun=c.compaction_begun,
            compaction_ended={name: c.compaction_ended[i] for name, i in _ENDS.items()},
            migration_calls={name: c.migration_calls[i] for i, name in enumerate(_MODES)},
            pages_moved={name: c.pages_moved[i] for name, i in _REASONS.items()},
            pages_failed={name: c.pages_failed[i] for name, i in _REASONS.items()},
            huge_moved=c.huge_moved,
            huge_failed=c.huge_failed,
            huge_split=c.huge_split,
        )
