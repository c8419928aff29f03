# SPDX-License-Identifier: BSD-2-Clause
"""Listens to what happens to memory of this process."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetPointer
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport getpid

from livedma._native.paging cimport memory_exit, memory_listen, memory_look, memory_unlisten
from livedma._native.rdma cimport check

HOOKS = tuple([ldma_hook_names[i].decode() for i in range(LDMA_HOOK_COUNT)])
CAUSES = tuple([ldma_cause_names[i].decode() for i in range(LDMA_CAUSE_COUNT)])
CAPSULE = "livedma.memory.hooks"


def look():
    """Looks at the pages of all listeners with a period, now. When it returns, everything has been told that it found or
    that the kernel had reported before, but for forks."""
    with nogil:
        memory_look()


def tell_exit():
    """Tells all listeners their release."""
    with nogil:
        memory_exit()


cdef class EventQueue:
    """Holds events until a thread takes them. Contracts are in memory/hook_queue.h."""

    cdef ldma_hook_queue *c

    def __cinit__(self, uint32_t capacity):
        check(ldma_hook_queue_create(capacity, &self.c))

    def __dealloc__(self):
        ldma_hook_queue_destroy(self.c)

    def take(self):
        """Returns up to 64 events, the oldest first: (tag, number, hook, cause, start, end, to, protection, lost)."""
        cdef ldma_queued taken[64]
        cdef uint32_t count, i
        with nogil:
            count = ldma_hook_queue_take(self.c, taken, 64)
        return [
            (
                taken[i].tag, taken[i].event.number, HOOKS[taken[i].event.hook],
                CAUSES[taken[i].event.cause], taken[i].event.start, taken[i].event.end,
                taken[i].event.to, taken[i].event.protection, taken[i].event.lost,
            )
            for i in range(count)
        ]

    def wait(self):
        """Waits for an event."""
        with nogil:
            ldma_hook_queue_wait(self.c)


cdef class MemoryListener:
    """Listens to the pages of a buffer: events go to the queue under the tag, or to the capsule's hooks."""

    cdef ldma_listener *c
    cdef ldma_queue_end end
    cdef EventQueue queue
    cdef object capsule
    cdef Py_buffer view
    cdef bint has_view, has_end
    cdef int pid
    cdef readonly uint64_t address
    cdef readonly uint64_t length

    def __init__(self, buffer, uint64_t period_ns, *, EventQueue queue=None, uint64_t tag=0,
                 capsule=None):
        cdef const ldma_hooks *hooks = &ldma_queue_hooks
        cdef void *arg = &self.end
        cdef int result
        if self.has_view:
            raise ValueError("it has begun to listen")
        self.pid = getpid()
        if capsule is not None:
            hooks = <const ldma_hooks *>PyCapsule_GetPointer(capsule, CAPSULE.encode())
            arg = PyCapsule_GetContext(capsule)
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.has_view = True
        self.address, self.length = <uint64_t>self.view.buf, self.view.len
        self.capsule, self.queue = capsule, queue
        if queue is not None:
            ldma_hook_queue_attach(queue.c, &self.end, tag, self.view.buf, self.view.len)
            self.has_end = True
        with nogil:
            result = memory_listen(self.view.buf, self.view.len, period_ns, hooks, arg, &self.c)
        check(result)

    def __dealloc__(self):
        self.close()
        self.detach()

    @property
    def lost(self):
        """Counts the events that found no room in the queue."""
        return ldma_queue_end_lost(&self.end) if self.has_end else 0

    def close(self):
        """Ends listening, after a release. Calling it again has no effect."""
        cdef ldma_listener *c = self.c
        self.c = NULL
        if c != NULL:
            with nogil:
                memory_unlisten(c)
        if self.has_view:
            self.has_view = False
            PyBuffer_Release(&self.view)

    def detach(self):
        """Ends its part of the queue, once the release has been taken."""
        if self.has_end and self.pid == getpid():  # else: a child's copy, which may be locked
            self.has_end = False
            ldma_hook_queue_detach(&self.end)
