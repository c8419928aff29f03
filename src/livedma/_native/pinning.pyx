# SPDX-License-Identifier: BSD-2-Clause
"""Keeps memory in its place by the kernel's ways: pins, locks, and what children of fork get of it."""
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t

from livedma._native.rdma cimport check

cdef extern from "memory/pin.h" nogil:
    uint64_t LDMA_PIN_MAX
    struct ldma_pin_ring:
        pass
    struct ldma_pin:
        ldma_pin_ring *ring
        uint32_t slot
    int ldma_pin_add(void *memory, size_t length, ldma_pin *ret)
    void ldma_pin_remove(ldma_pin *pin)

cdef extern from "<sys/mman.h>" nogil:
    int MADV_DONTFORK, MADV_DOFORK
    int madvise(void *memory, size_t length, int advice)
    int mlock(const void *memory, size_t length)
    int munlock(const void *memory, size_t length)

#: The most bytes of one Pinned.
PINNED_MAX = LDMA_PIN_MAX


cdef class Pinned:
    """Pins whole pages until release(). Raises OSError as memory/pin.h says."""

    cdef ldma_pin c

    def __cinit__(self, uint64_t address, uint64_t length):
        cdef int result
        with nogil:
            result = ldma_pin_add(<void *>address, length, &self.c)
        check(result)

    def __dealloc__(self):
        ldma_pin_remove(&self.c)

    def release(self):
        """Unpins the pages. Calling it again has no effect."""
        with nogil:
            ldma_pin_remove(&self.c)


def place_of(buffer):
    """Returns the address and length of a writable buffer, which the caller has to hold."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    place = <uint64_t>view.buf, <uint64_t>view.len
    PyBuffer_Release(&view)
    return place


def lock(uint64_t address, uint64_t length):
    """Locks memory (mlock): it stays in memory, but the kernel may move it. One unlock undoes many locks."""
    cdef int result
    with nogil:
        result = mlock(<void *>address, length)
        if result:
            result = -errno
    check(result)


def unlock(uint64_t address, uint64_t length):
    """Unlocks memory. Memory that is no longer mapped is no error."""
    with nogil:
        munlock(<void *>address, length)


def keep_from_children(uint64_t address, uint64_t length):
    """Lets children of fork have nothing there. One give_to_children undoes many such calls."""
    cdef int result
    with nogil:
        result = madvise(<void *>address, length, MADV_DONTFORK)
        if result:
            result = -errno
    check(result)


def give_to_children(uint64_t address, uint64_t length):
    """Undoes keep_from_children. Memory that is no longer mapped is no error."""
    with nogil:
        madvise(<void *>address, length, MADV_DOFORK)
