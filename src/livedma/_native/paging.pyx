# SPDX-License-Identifier: BSD-2-Clause
"""Regions over memory that is not pinned: the device has a page table of its own for each."""
cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.errno cimport EEXIST
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from livedma._native.hooks cimport (
    ldma_hooks, ldma_listener, ldma_memory_exit, ldma_memory_listen, ldma_memory_look,
    ldma_memory_unlisten,
)
from livedma._native.paging cimport *
from livedma._native.rdma cimport (
    Engine, ProtectionDomain, check, ldma_device_iova, ldma_iova_deregister, random_key, rights,
)


cdef int memory_listen(void *memory, uint64_t length, uint64_t period_ns, const ldma_hooks *hooks,
                       void *arg, ldma_listener **ret) noexcept nogil:
    return ldma_memory_listen(memory, length, period_ns, hooks, arg, ret)


cdef void memory_unlisten(ldma_listener *listener) noexcept nogil:
    ldma_memory_unlisten(listener)


cdef void memory_look() noexcept nogil:
    ldma_memory_look()


cdef void memory_exit() noexcept nogil:
    ldma_memory_exit()


cdef dict counters_of(const ldma_paged_counters *c):
    cdef const char *base = <const char *>c
    return {
        ldma_paged_counter_names[i].name.decode():
            (<const uint64_t *>(base + ldma_paged_counter_names[i].offset))[0]
        for i in range(LDMA_PAGED_COUNTER_COUNT)
    }


@cython.no_gc_clear  # what it holds must outlive it
cdef class Paged:
    """Holds what all regions with a page table have in common. Offsets and lengths are in bytes, and count whole
    pages."""

    def __dealloc__(self):
        self.withdraw()
        self.give_up()

    cdef int take_buffer(self, buffer) except -1:
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.has_view = True
        self.length = self.view.len
        return 0

    cdef int offer(self, Engine engine, ProtectionDomain domain, access, va) except -1:
        """Registers the region under a new key. Its memory is in c already."""
        cdef uint32_t mask = rights(access), tried
        cdef int result = -EEXIST
        self.va = <uint64_t>self.view.buf if va is None else va
        while result == -EEXIST:
            tried = random_key()
            engine.acquire()
            result = ldma_iova_register_paged(ldma_device_iova(engine.c), domain.live(), self.c,
                                              self.va, mask, tried)
            engine.release()
        check(result)
        self.key, self.engine, self.domain = tried, engine, domain
        engine.children.add(self)
        return 0

    cdef int withdraw(self) except -1:
        if self.engine is not None:
            self.engine.acquire()
            ldma_iova_deregister(ldma_device_iova(self.engine.c), self.key)
            self.engine.release()
            self.engine = None
        return 0

    cdef void give_up(self) noexcept:
        if self.has_view:
            PyBuffer_Release(&self.view)
            self.has_view = False

    cdef ldma_paged *live(self) except NULL:
        if self.engine is None:
            raise ValueError("the region is closed")
        return self.c

    cdef int check_range(self, uint64_t offset, uint64_t length) except -1:
        if not length or offset > self.length or length > self.length - offset:
            raise ValueError(f"{length} bytes at {offset} are not in a region of {self.length}")
        return 0

    @property
    def closed(self):
        return self.engine is None

    def close(self):
        """Takes the right away: a use of the key gets an error from now on. It does not wait."""
        self.withdraw()
        self.give_up()


cdef class PagedRegion(Paged):
    """Pages a region of an engine without a wire: its user makes pages present and takes them away."""

    cdef ldma_paged paged
    cdef ldma_paging *paging

    def __init__(self, Engine engine not None, buffer, access=(), *, va=None,
                 ProtectionDomain pd=None):
        if self.c != NULL:
            raise ValueError("the region has its memory already")
        self.paging = <ldma_paging *>calloc(1, sizeof(ldma_paging))
        if self.paging == NULL:
            raise MemoryError
        self.take_buffer(buffer)
        ldma_paging_init(self.paging, NULL)
        check(ldma_paged_init(&self.paged, self.paging, self.view.buf, self.length))
        self.c = &self.paged
        self.offer(engine, engine.domain if pd is None else pd, access, va)

    cdef void give_up(self) noexcept:
        if self.c != NULL:
            ldma_paged_release(self.c)
            ldma_paged_destroy(self.c)
        self.c = NULL
        free(self.paging)
        self.paging = NULL
        Paged.give_up(self)

    @property
    def counters(self):
        return counters_of(&self.live().counters)

    @property
    def present(self):
        """Counts the pages that the device may read."""
        return ldma_paged_present(self.live())

    def resolve(self, filled=None):
        """Answers the oldest fault: makes all its pages present, or `filled` of them (0: it fails).

        Returns (page, pages, for writing), or None if there was no fault.
        """
        cdef ldma_fault fault
        self.live()
        if not ldma_paging_take_fault(self.paging, &fault):
            return None
        ldma_paged_resolve(&fault, fault.count if filled is None else filled)
        return fault.first, fault.count, bool(fault.is_write)

    def invalidate_range(self, uint64_t offset, uint64_t length):
        ldma_paged_invalidate_range(self.live(), offset, length)

    def unmap_range(self, uint64_t offset, uint64_t length):
        ldma_paged_unmap_range(self.live(), offset, length)

    def offer_range(self, uint64_t offset, uint64_t length):
        ldma_paged_offer_range(self.live(), offset, length)

    def update_range(self, uint64_t offset, uint64_t length, bint writable=True):
        ldma_paged_update_range(self.live(), offset, length, writable)


cdef class WatchedRegion(Paged):
    """Pages a region over memory of this process; the pager keeps it in step with that memory.

    Contracts are in memory/pager.h; its errors are OSError. Any thread may make calls.
    """

    def __init__(self, Engine engine not None, buffer, access=(), *, va=None,
                 ProtectionDomain pd=None):
        cdef int result
        if self.c != NULL:
            raise ValueError("the region has its memory already")
        if "remote_atomic" in access and not LDMA_VANISHING_ATOMICS:
            raise NotImplementedError("this processor has no atomics on memory that may vanish")
        self.take_buffer(buffer)
        with nogil:
            result = ldma_pager_open(self.view.buf, self.length, &self.c)
        check(result)
        self.offer(engine, engine.domain if pd is None else pd, access, va)

    cdef void give_up(self) noexcept:
        cdef ldma_paged *c = self.c
        self.c = NULL
        if c != NULL:
            with nogil:
                ldma_pager_close(c)
        Paged.give_up(self)

    @property
    def address(self):
        return <uint64_t>self.view.buf

    @property
    def counters(self):
        cdef ldma_paged *c = self.live()
        ldma_paging_enter(c.paging)
        cdef ldma_paged_counters copy = c.counters
        ldma_paging_leave(c.paging)
        return counters_of(&copy)

    @property
    def present(self):
        """Counts the pages that the device may read."""
        cdef ldma_paged *c = self.live()
        cdef uint64_t present
        ldma_paging_enter(c.paging)
        present = ldma_paged_present(c)
        ldma_paging_leave(c.paging)
        return present

    def prefetch(self, uint64_t offset, uint64_t length, bint write=True):
        cdef ldma_paged *c = self.live()
        cdef int result
        self.check_range(offset, length)
        ldma_pager_hold(c)
        with nogil:
            result = ldma_pager_prefetch(c, offset, length, write)
            ldma_pager_drop(c)
        check(result)

    def sync_range(self, uint64_t offset, uint64_t length):
        """Returns [(offset, length)] of what was written since the last call."""
        cdef ldma_paged *c = self.live()
        cdef ldma_pager_range ranges[64]
        cdef uint64_t end, at = offset
        cdef long found = 0, i
        cdef list written = []
        self.check_range(offset, length)
        ldma_pager_hold(c)
        try:
            while at < offset + length:
                with nogil:
                    found = ldma_pager_sync(c, at, offset + length - at, ranges, 64, &end)
                check(<int>min(found, 0))
                for i in range(found):
                    written.append((ranges[i].offset, ranges[i].length))
                at = end
        finally:
            with nogil:
                ldma_pager_drop(c)
        return written

    def invalidate_range(self, uint64_t offset, uint64_t length):
        cdef ldma_paged *c = self.live()
        self.check_range(offset, length)
        ldma_paging_enter(c.paging)
        ldma_paged_invalidate_range(c, offset, length)
        ldma_paging_leave(c.paging)

    def change_protection(self, uint64_t offset, uint64_t length):
        """Invalidates the range, so that the device asks again for what is allowed now."""
        self.invalidate_range(offset, length)

    def update_range(self, uint64_t offset, uint64_t length):
        cdef ldma_paged *c = self.live()
        cdef int result
        self.check_range(offset, length)
        ldma_pager_hold(c)
        with nogil:
            result = ldma_pager_offer(c, offset, length)
            ldma_pager_drop(c)
        check(result)
