# SPDX-License-Identifier: BSD-2-Clause
"""An account of the calls that Python serves for one connection, in the histograms that C keeps for its own."""
cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from livedma._native.times cimport *

cdef extern from "base/monotonic.h" nogil:
    uint64_t ldma_now_ns()


cdef struct account_t:
    uint64_t read_bytes, written_bytes
    ldma_times latency, thread_waits, storage


@cython.final
cdef class CallAccount:
    """Counts calls of one connection, the bytes that they moved and the time that they took. Python's
    interpreter lock guards it, so any thread may use it.
    """

    cdef account_t c

    def __cinit__(self):
        memset(&self.c, 0, sizeof(self.c))

    def ended(self, uint64_t arrived_ns, uint64_t began_ns):
        """Counts a call that is answered now. It came, and a thread began with it, at these times of the monotonic
        clock.
        """
        ldma_times_add(&self.c.latency, ldma_now_ns() - arrived_ns)
        ldma_times_add(&self.c.thread_waits, began_ns - arrived_ns)

    def moved(self, uint64_t read_bytes, uint64_t written_bytes, uint64_t storage_ns):
        """Counts what a call read and wrote of files. storage_ns: its time in the store; 0: it did not use it."""
        self.c.read_bytes += read_bytes
        self.c.written_bytes += written_bytes
        if storage_ns:
            ldma_times_add(&self.c.storage, storage_ns)

    def totals(self):
        """Returns, since the connection was made: the bytes read, the bytes written, and two histograms, of the latency
        and of the time in the store. A histogram has the number of calls below each of TIMES_BOUNDS_NS,
        the number of all calls and the sum of their times in ns.
        """
        return (
            self.c.read_bytes,
            self.c.written_bytes,
            tuple(flat(&self.c.latency)),
            tuple(flat(&self.c.storage)),
        )


@cython.final
cdef class CallLook:
    """Counts from one look at an account to the next. Each reader keeps a look of its own."""

    cdef account_t before

    def __cinit__(self):
        memset(&self.before, 0, sizeof(self.before))

    def again(self, CallAccount account not None):
        """Returns, since the last look: the bytes read, the bytes written, and the times of latency, of waiting for a
        thread and in the store, each as (count, sum, half of them within, 99 of 100 within, longest), in ns.
        """
        cdef account_t *now = &account.c
        cdef account_t *before = &self.before
        ret = (
            now.read_bytes - before.read_bytes,
            now.written_bytes - before.written_bytes,
            summary(&before.latency, &now.latency),
            summary(&before.thread_waits, &now.thread_waits),
            summary(&before.storage, &now.storage),
        )
        self.before = now[0]
        return ret
