# SPDX-License-Identifier: BSD-2-Clause
"""Serves NFS calls without Python. Contracts are in nfs/accelerator.h."""
import os
import time

cimport cython
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_New, PyCapsule_SetContext
from cpython.ref cimport Py_DECREF, Py_INCREF

from livedma._native.histogram cimport ldma_histogram, shown
from livedma._native.nfs cimport *

cdef extern from "nfs/accelerator.h" nogil:
    int LDMA_OTHER_BYTES, LDMA_WORKERS_MAX
    uint32_t LDMA_UID_NONE
    struct ldma_grant_access:
        uint32_t seqid
        bint is_readable, is_writable
    struct ldma_opens:
        uint32_t count
    int ldma_opens_grant(ldma_opens *opens, const uint8_t *other, ldma_grant_access access,
                         const uint8_t *handle, uint32_t handle_length, int fd, uint64_t client,
                         uint32_t uid)
    bint ldma_opens_update(ldma_opens *opens, const uint8_t *other, ldma_grant_access access)
    bint ldma_opens_revoke(ldma_opens *opens, const uint8_t *other)

    struct ldma_sessions:
        uint32_t count
    int ldma_sessions_add(ldma_sessions *sessions, ldma_slots *slots)
    bint ldma_sessions_remove(ldma_sessions *sessions, ldma_slots *slots)

    struct ldma_workers:
        uint64_t delay_ns
        uint32_t width, queued, queued_most
    void ldma_workers_set_delay(ldma_workers *workers, uint64_t delay_ns)
    void ldma_workers_set_width(ldma_workers *workers, uint32_t width)

    struct ldma_kind_counters:
        uint64_t calls, bytes, errors
        ldma_histogram storage
    struct ldma_accelerator_counters:
        uint64_t taken, left_shape, left_session, left_stateid, left_slot, left_limit
        uint64_t at_once, by_worker, lost, sync_failures
    struct ldma_accelerator_config:
        uint32_t threads, operations, read_max
        bint has_reserve
    struct ldma_accelerator:
        ldma_sessions sessions
        ldma_opens opens
        ldma_workers workers
        ldma_lock stats_lock
        ldma_accelerator_counters counters
        ldma_kind_counters *kinds
    int LDMA_KINDS
    int ldma_accelerator_create(const ldma_accelerator_config *config,
                                ldma_changes *changes, uint64_t *verifier, ldma_accelerator **ret)
    void ldma_accelerator_close(ldma_accelerator *accelerator)
    uint32_t ldma_accelerator_in_use(ldma_accelerator *accelerator)
    void ldma_accelerator_stop(ldma_accelerator *accelerator)
    void ldma_accelerator_destroy(ldma_accelerator *accelerator)

UID_NONE = LDMA_UID_NONE
KINDS = ("read", "write", "commit")


cdef int check_other(bytes other) except -1:
    if other is None or len(other) != LDMA_OTHER_BYTES:
        raise ValueError("the other part of a stateid has 12 bytes")
    return 0


cdef void release_owner(object capsule) noexcept:
    Py_DECREF(<object>PyCapsule_GetContext(capsule))


@cython.final
cdef class Sessions:
    """Holds the sessions whose requests may be served without Python."""

    cdef Accelerator accelerator

    def __init__(self):
        raise TypeError("an accelerator has its sessions")

    def add(self, SlotTable table not None):
        if ldma_sessions_add(&self.accelerator.live().sessions, table.c):
            raise ValueError("there is a session of that id")

    def remove(self, SlotTable table not None):
        """Removes a session; returns whether it was there."""
        return bool(ldma_sessions_remove(&self.accelerator.live().sessions, table.c))

    def __len__(self):
        return self.accelerator.c.sessions.count


@cython.final
cdef class Accelerator:
    """Serves READ, WRITE and COMMIT on granted files, without Python.

    Threads make the storage calls that may block; with a reserve, a COMMIT does not wait behind all of
    the others. It serves up to `operations` calls at a time, and
    one READ gives up to `read_max` bytes. It shares change attributes and the write verifier with
    the Python code that answers all other calls.
    """

    cdef ldma_accelerator *c
    cdef bint is_stopped
    cdef readonly Sessions sessions
    cdef readonly Changes changes
    cdef readonly WriteVerifier verifier

    def __cinit__(self, Changes changes not None, WriteVerifier verifier not None, *,
                  uint32_t threads=4, uint32_t operations=4096, uint32_t read_max=1 << 20,
                  bint has_reserve=False):
        cdef ldma_accelerator_config config
        if not 1 <= threads <= LDMA_WORKERS_MAX:
            raise ValueError(f"1 to {LDMA_WORKERS_MAX} threads, not {threads}")
        config.threads = threads
        config.operations = operations
        config.read_max = read_max
        config.has_reserve = has_reserve
        cdef int result = ldma_accelerator_create(&config, changes.c, &verifier.c, &self.c)
        if result:
            raise OSError(-result, os.strerror(-result))
        self.changes = changes
        self.verifier = verifier
        self.sessions = Sessions.__new__(Sessions)
        self.sessions.accelerator = self

    def __dealloc__(self):
        if not self.c:
            return
        ldma_accelerator_close(self.c)
        # Its memory is not freed if it is dropped while its calls are under way.
        if not ldma_accelerator_in_use(self.c):
            with nogil:
                ldma_accelerator_destroy(self.c)

    cdef ldma_accelerator *live(self) except NULL:
        if self.is_stopped:
            raise ValueError("the accelerator is closed")
        return self.c

    @property
    def capsule(self):
        """Wraps its struct ldma_program for `Service.set_program`, and keeps it alive."""
        capsule = PyCapsule_New(self.live(), "ldma_program", release_owner)
        PyCapsule_SetContext(capsule, <void *>self)
        Py_INCREF(self)
        return capsule

    def grant(self, bytes other, uint32_t seqid, bytes handle not None, int fd, bint readable,
              bint writable, uint64_t client, uint32_t uid):
        """Lets READ, WRITE and COMMIT by this stateid, of this client and user (UID_NONE: AUTH_NONE), use
        a duplicate of fd. ValueError: there is such a grant, or it is no regular file."""
        cdef ldma_grant_access access
        check_other(other)
        access.seqid = seqid
        access.is_readable = readable
        access.is_writable = writable
        cdef int result = ldma_opens_grant(&self.live().opens, other, access, handle,
                                           <uint32_t>len(handle), fd, client, uid)
        if result:
            raise OSError(-result, os.strerror(-result))

    def update(self, bytes other, uint32_t seqid, bint readable, bint writable):
        """Changes a grant; returns whether there is such a grant."""
        cdef ldma_grant_access access
        check_other(other)
        access.seqid = seqid
        access.is_readable = readable
        access.is_writable = writable
        return bool(ldma_opens_update(&self.live().opens, other, access))

    def revoke(self, bytes other):
        """Takes a grant back; returns whether there was one. Calls that have begun go on."""
        check_other(other)
        return bool(ldma_opens_revoke(&self.live().opens, other))

    @property
    def grants(self):
        """Counts the grants that it has now."""
        return self.c.opens.count

    @property
    def store_delay_s(self):
        """The time that each storage call waits before it is made."""
        return load64_relaxed(&self.c.workers.delay_ns) / 1e9

    @store_delay_s.setter
    def store_delay_s(self, double delay_s):
        if not 0 <= delay_s <= 3600:
            raise ValueError(f"a delay of 0 to 3600 s, not {delay_s}")
        ldma_workers_set_delay(&self.c.workers, <uint64_t>(delay_s * 1e9))

    @property
    def store_width(self):
        """The most storage calls that are made at a time, those in their delay among them; 0: no limit."""
        return load_relaxed(&self.c.workers.width)

    @store_width.setter
    def store_width(self, uint32_t width):
        ldma_workers_set_width(&self.c.workers, width)

    @property
    def counters(self):
        ldma_take(&self.c.stats_lock)
        cdef ldma_accelerator_counters counters = self.c.counters
        ldma_unlock(&self.c.stats_lock)
        ret = dict(counters)
        ret["in_use"] = ldma_accelerator_in_use(self.c)
        ret["queued"] = load_relaxed(&self.c.workers.queued)
        ret["queued_most"] = load_relaxed(&self.c.workers.queued_most)
        return ret

    cdef ldma_kind_counters of_kind(self, str kind) except *:
        cdef int number = KINDS.index(kind)
        ldma_take(&self.c.stats_lock)
        cdef ldma_kind_counters counters = self.c.kinds[number]
        ldma_unlock(&self.c.stats_lock)
        return counters

    def served(self, str kind not None):
        """Returns the calls, bytes and errors of one of KINDS."""
        cdef ldma_kind_counters counters = self.of_kind(kind)
        return {"calls": counters.calls, "bytes": counters.bytes, "errors": counters.errors}

    def storage_times(self, str kind not None):
        """Returns how long storage calls took: (count, sum, longest, [(least of a bucket, how many)]), in ns."""
        cdef ldma_kind_counters counters = self.of_kind(kind)
        return shown(&counters.storage)

    def close(self, double timeout_s=10):
        """Takes no more calls, and waits for those that it has taken. TimeoutError: some have not ended."""
        cdef double until = time.monotonic() + timeout_s
        ldma_accelerator_close(self.c)
        while ldma_accelerator_in_use(self.c):
            if time.monotonic() > until:
                raise TimeoutError("calls are still being served")
            time.sleep(0.001)
        if self.is_stopped:
            return
        self.is_stopped = True
        with nogil:
            ldma_accelerator_stop(self.c)
