# SPDX-License-Identifier: BSD-2-Clause
"""Windows of an engine: DMA addresses reserved at once and backed with memory part by part."""
cimport cython
from cpython.buffer cimport PyBUF_FULL, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EEXIST
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t

from livedma._native.rdma cimport (
    Engine, ProtectionDomain, check, ldma_device, ldma_device_iova, ldma_iova,
    ldma_iova_deregister, ldma_pd, random_key, rights,
)

cdef extern from "memory/window.h" nogil:
    struct ldma_table:
        pass
    struct ldma_window:
        ldma_table table
        uint64_t va
        uint64_t size
        uint64_t pad
        uint64_t end
        uint64_t linked
        uint64_t pieces
        bint is_guarded
    int ldma_window_reserve(ldma_window *window, ldma_iova *iova, uint64_t size, uint8_t shift,
                            uint64_t pad)
    int ldma_window_link(ldma_window *window, uint64_t offset, void *memory, uint64_t length)
    int ldma_window_sync(ldma_window *window, uint64_t offset, uint64_t length) noexcept
    int ldma_window_drain(ldma_window *window, uint64_t offset, uint64_t length) noexcept
    int ldma_window_reopen(ldma_window *window, uint64_t offset, uint64_t length) noexcept
    int ldma_window_unlink(ldma_window *window, uint64_t offset, uint64_t length) noexcept
    int ldma_window_free(ldma_window *window)
    int ldma_window_close(ldma_window *window)
    int ldma_window_destroy(ldma_window *window, uint64_t length)
    int ldma_iova_register_window(ldma_iova *iova, ldma_pd *pd, ldma_window *window,
                                  uint32_t access, uint32_t random_key)

cdef extern from "device/in_use.h" nogil:
    uint32_t LDMA_USER_PEER, LDMA_USER_HOST
    uint32_t ldma_device_uses(const ldma_device *device, uint32_t key, uint64_t va,
                              uint64_t length)

ctypedef int (*change_range)(ldma_window *, uint64_t, uint64_t) noexcept nogil

# The most granules that change under one hold of the device: packets wait meanwhile.
cdef uint64_t AT_ONCE = 8192


@cython.no_gc_clear  # what it holds must outlive it
cdef class Window:
    """Reserves a range of an engine's DMA addresses, with the rules of memory/window.h; peers may use it through its
    key.

    Offsets and lengths are in bytes. Memory is a writable buffer, which is held until it is unlinked, or an address,
    whose memory must stay until then.
    """

    cdef Engine engine
    cdef ProtectionDomain domain
    cdef ldma_window c
    cdef uint8_t shift
    cdef uint32_t mask
    cdef readonly uint32_t key
    cdef readonly uint64_t va, size, granule, pad
    cdef list held  # (start, end, buffer) of what is linked, as offsets
    cdef object __weakref__

    def __init__(self, Engine engine not None, uint64_t size, uint64_t granule=4096, access=(), *,
                 ProtectionDomain pd=None, uint64_t pad=0, bint guarded=False):
        """Reserves addresses. pad: where in its granule the first memory will begin. guarded: the memory may vanish, as
        that of a file may.

        OSError(ENOSPC): no such range is free.
        """
        cdef ProtectionDomain domain = engine.domain if pd is None else pd
        self.mask = rights(access)
        cdef ldma_iova *iova = ldma_device_iova(engine.c)
        cdef ldma_pd *c = domain.live()
        cdef uint32_t tried
        cdef int result
        if self.engine is not None:
            raise ValueError("the window is there already")
        if granule & (granule - 1) or not granule:
            raise ValueError("a granule is a power of two")
        self.shift = granule.bit_length() - 1
        engine.acquire()
        result = ldma_window_reserve(&self.c, iova, size, self.shift, pad)
        engine.release()
        check(result)
        self.c.is_guarded = guarded
        result = -EEXIST
        while result == -EEXIST:
            tried = random_key()
            engine.acquire()
            result = ldma_iova_register_window(iova, c, &self.c, self.mask, tried)
            if result < 0 and result != -EEXIST:
                ldma_window_free(&self.c)
            engine.release()
        check(result)
        self.key, self.va, self.size = tried, self.c.va, size
        self.granule, self.pad = granule, pad
        self.engine, self.domain, self.held = engine, domain, []
        engine.children.add(self)

    def __dealloc__(self):
        if self.engine is not None:
            self.engine.acquire()
            self.end()
            self.engine.release()

    cdef void end(self) noexcept:
        """Unlinks everything."""
        ldma_iova_deregister(ldma_device_iova(self.engine.c), self.key)
        ldma_window_close(&self.c)

    cdef int live(self) except -1:
        if self.engine is None:
            raise ValueError("the window is freed")
        return 0

    def close(self):
        """Unlinks everything at once, even what is in use, and gives the addresses back."""
        if self.engine is not None:
            self.engine.acquire()
            self.end()
            self.engine.release()
            self.engine, self.held = None, []

    @property
    def closed(self):
        return self.engine is None

    @property
    def linked(self):
        """Counts the bytes that have memory, in whole granules."""
        return self.c.linked << self.shift

    @property
    def pieces(self):
        """Counts the runs of memory: links that are neighbours in window and memory are one."""
        return self.c.pieces

    def link(self, uint64_t offset, memory, length=None):
        """Links memory at the offset: a long one in several steps, between which packets pass. length: for an address;
        a buffer has its own."""
        cdef Py_buffer buffer
        cdef uintptr_t address
        if isinstance(memory, int):
            self.link_at(offset, memory, length)
            return
        view = memoryview(memory)
        if view.readonly or not view.contiguous:
            raise ValueError("memory is linked that can be written and is in one piece")
        if length is not None and length != view.nbytes:
            raise ValueError("a buffer is linked as a whole: give a part of it as a memoryview")
        PyObject_GetBuffer(view, &buffer, PyBUF_FULL)
        address = <uintptr_t>buffer.buf
        PyBuffer_Release(&buffer)  # the view that is kept holds the memory
        self.link_at(offset, address, view.nbytes)
        self.held.append((offset, offset + view.nbytes, view))

    cdef int link_at(self, uint64_t offset, uintptr_t memory, uint64_t length) except -1:
        cdef uint64_t done = 0, step
        cdef int result = 0
        while result == 0 and (done < length or not length):
            self.live()
            step = min(length - done, AT_ONCE << self.shift)
            if done == 0 and step < length:  # the next step has to begin on a granule
                step -= (self.pad + offset) & (self.granule - 1)
            self.engine.acquire()
            result = ldma_window_link(&self.c, offset + done, <void *>(memory + done), step)
            if result < 0 and done:
                ldma_window_unlink(&self.c, offset, done)
            self.engine.release()
            done += step
            with nogil:  # lets other threads of the interpreter run
                pass
        return check(result)

    cdef int change(self, change_range function, uint64_t offset, uint64_t length) except -1:
        cdef int result
        self.live()
        self.engine.acquire()
        result = function(&self.c, offset, length)
        self.engine.release()
        return check(result)

    def sync(self, uint64_t offset, uint64_t length):
        self.change(ldma_window_sync, offset, length)

    def drain(self, uint64_t offset, uint64_t length):
        self.change(ldma_window_drain, offset, length)

    def reopen(self, uint64_t offset, uint64_t length):
        self.change(ldma_window_reopen, offset, length)

    def unlink(self, uint64_t offset, uint64_t length):
        self.change(ldma_window_unlink, offset, length)
        self.let_go(offset, offset + length)

    cdef int let_go(self, uint64_t start, uint64_t end) except -1:
        """Drops the buffers of which no part is linked any more."""
        cdef list kept = []
        for first, last, view in self.held:
            if last <= start or end <= first:
                kept.append((first, last, view))
                continue
            if first < start:
                kept.append((first, start, view))
            if end < last:
                kept.append((end, last, view))
        self.held = kept
        return 0

    def users(self, uint64_t offset, uint64_t length):
        """Returns which sides use the range now: "peer" (messages that have begun), "host" (what is posted)."""
        cdef uint32_t users
        self.live()
        self.engine.acquire()
        users = ldma_device_uses(self.engine.c, self.key, self.va + offset, length)
        self.engine.release()
        return frozenset(
            name for name, bit in (("peer", LDMA_USER_PEER), ("host", LDMA_USER_HOST)) if users & bit
        )

    cdef int finish(self, bint is_destroyed, uint64_t length) except -1:
        cdef int result
        self.live()
        self.engine.acquire()
        ldma_iova_deregister(ldma_device_iova(self.engine.c), self.key)
        result = ldma_window_destroy(&self.c, length) if is_destroyed else ldma_window_free(&self.c)
        if result < 0:
            ldma_iova_register_window(ldma_device_iova(self.engine.c), self.domain.c, &self.c,
                                      self.mask, self.key)
        self.engine.release()
        check(result)
        self.engine, self.held = None, []
        return 0

    def free(self):
        """Gives the addresses back; all has to be unlinked before (EBUSY)."""
        self.finish(False, 0)

    def destroy(self, uint64_t length):
        """Unlinks the length bytes at the start, which have to be all that is linked (EINVAL), and frees."""
        self.finish(True, length)
