# SPDX-License-Identifier: BSD-2-Clause
"""Reads capture files, pcap and pcapng, as streams of batches."""
import os
import select
import stat
from collections import namedtuple
from queue import Empty, Queue
from threading import Thread

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free
from libc.string cimport memmove
from posix.unistd cimport read

from livedma._native.capfile cimport *
from livedma._native.packet cimport ldma_batch
from livedma._native.wire cimport Batch

cdef extern from "Python.h":
    PyObject *PyList_GetItem(list items, Py_ssize_t index)  # borrowed

cdef extern from "stdlib.h" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

# Small enough to stay in the processor's caches between read and decode. Reads go from a page-aligned offset of the
# file to page-aligned memory; the part of an incomplete block is moved in front of the place of the next read.
cdef size_t BUFFER_BYTES = 1 << 20
cdef size_t FRONT_BYTES = LDMA_CAPFILE_BLOCK_MAX

Interface = namedtuple("Interface", "name link snaplen frames received dropped")


@cython.final
cdef class _Buffer:
    """Holds memory for one read. A batch whose packets lie in it keeps it alive."""

    cdef uint8_t *bytes

    def __cinit__(self):
        self.bytes = <uint8_t *>aligned_alloc(4096, FRONT_BYTES + BUFFER_BYTES)
        if self.bytes == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.bytes)


@cython.final
cdef class _ReadAhead:
    """Reads a regular file in a thread of its own, a few buffers ahead of the reader that takes them."""

    cdef int fd
    cdef bint stopped
    cdef object filled, thread

    def __cinit__(self, int fd):
        self.fd = fd
        self.filled = Queue(maxsize=2)
        self.thread = Thread(target=self.run, name="read file", daemon=True)
        self.thread.start()

    def run(self):
        cdef list buffers = []
        cdef _Buffer buffer
        cdef ssize_t got = 1
        cdef int error
        while got > 0 and not self.stopped:
            buffer = None
            buffer = free_buffer(buffers)
            with nogil:
                got = read(self.fd, buffer.bytes + FRONT_BYTES, BUFFER_BYTES)
                error = errno
            self.filled.put((buffer, got, error))

    def stop(self):
        """Ends the thread, and waits until it no longer uses the descriptor."""
        self.stopped = True
        while self.thread.is_alive():
            try:
                self.filled.get(timeout=0.01)
            except Empty:
                pass


cdef _Buffer free_buffer(list buffers):
    """Returns a buffer that only the list refers to, or a new one if there is none."""
    cdef PyObject *buffer
    cdef Py_ssize_t i
    for i in range(len(buffers)):
        buffer = PyList_GetItem(buffers, i)
        if buffer.ob_refcnt == 1:
            return <_Buffer>buffer
    buffers.append(_Buffer())
    return buffers[-1]


@cython.final
cdef class FileReader:
    """Reads a pcap or pcapng file, pipe or descriptor in bounded memory.

    A batch's packets are valid until that batch is filled again; several batches may be in use at a time.
    """

    cdef ldma_capfile c
    cdef int fd
    cdef bint owned, at_end, busy, done
    cdef list buffers
    cdef _Buffer buffer
    cdef _ReadAhead ahead  # for regular files; others are read when their bytes are wanted
    cdef size_t start, end

    def __cinit__(self, source):
        self.fd = -1
        ldma_capfile_init(&self.c)
        self.buffer = _Buffer()
        self.buffers = [self.buffer]
        self.start = self.end = FRONT_BYTES
        if isinstance(source, int):
            self.fd = source
        else:
            self.fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            self.owned = True
        if stat.S_ISREG(os.fstat(self.fd).st_mode):
            self.ahead = _ReadAhead(self.fd)

    def __dealloc__(self):
        ldma_capfile_destroy(&self.c)

    def __del__(self):
        self.close()

    def close(self):
        """Closes the file if it opened it. Batches stay valid."""
        if self.ahead is not None:
            self.ahead.stop()
        if self.owned and self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self.done = True

    def next_batch(self, Batch batch not None):
        """Fills the batch with the packets that come next. False: the file is over; see error.

        It waits only while there is no packet to give, so a slow pipe delivers packets as they come.
        """
        if self.busy:
            raise RuntimeError("another thread reads from this file")
        if batch.c.capacity == 0:
            raise ValueError("the batch has no room for packets")
        self.busy = True
        try:
            batch.reset()
            while not self.done:
                if self.advance(batch.c):
                    break
            batch.keep = self.buffer
            return batch.c.count > 0 or batch.c.other > 0
        finally:
            self.busy = False

    cdef bint advance(self, ldma_batch *batch) except -1:
        """Decodes packets of the buffer, or reads more if it holds none. Returns whether the batch has packets."""
        cdef size_t consumed = 0
        cdef int step
        cdef uint8_t *bytes = self.buffer.bytes
        with nogil:
            step = ldma_capfile_fill(&self.c, batch, bytes + self.start, self.end - self.start,
                                     self.at_end, &consumed)
        self.start += consumed
        if step == LDMA_CAPFILE_END or step == LDMA_CAPFILE_ERROR:
            self.done = True
        if step == LDMA_CAPFILE_NEED and batch.count == 0:
            self.refill()
        return batch.count > 0

    cdef int refill(self) except -1:
        """Reads more of the file behind the bytes that are left, which are less than a block."""
        cdef ssize_t got
        cdef int error
        cdef uint8_t *bytes
        if self.ahead is not None:
            buffer, got, error = self.ahead.filled.get()
            self.move_to(buffer)
        else:
            if self.start == self.end or self.end == FRONT_BYTES + BUFFER_BYTES:
                self.move_to(free_buffer(self.buffers))
            bytes = self.buffer.bytes
            with nogil:
                got = read(self.fd, bytes + self.end, FRONT_BYTES + BUFFER_BYTES - self.end)
                error = errno
            PyErr_CheckSignals()
        if got > 0:
            self.end += got
        elif got == 0:
            self.at_end = True
        elif error == EAGAIN:
            select.select((self.fd,), (), (), 1.0)
        elif error != EINTR:
            self.done = True
            raise OSError(error, os.strerror(error))
        return 0

    cdef int move_to(self, _Buffer buffer) except -1:
        """Copies the bytes that are left to another buffer, in front of the place where reads go."""
        cdef size_t left = self.end - self.start
        memmove(buffer.bytes + FRONT_BYTES - left, self.buffer.bytes + self.start, left)
        self.buffer = buffer
        self.start = FRONT_BYTES - left
        self.end = FRONT_BYTES
        return 0

    @property
    def format(self):
        """Names the file's format: 'pcap', 'pcapng', or None before the first batch."""
        if self.c.format == LDMA_CAPFILE_PCAP:
            return "pcap"
        return "pcapng" if self.c.format == LDMA_CAPFILE_PCAPNG else None

    @property
    def frames(self):
        """Counts the frames that were read so far, RoCE or not."""
        return self.c.frames

    @property
    def offset(self):
        """Counts the bytes of the file that were used so far."""
        return self.c.offset

    @property
    def contradictions(self):
        """Counts the frames whose lengths contradict each other; they were cut to the bytes that are there."""
        return self.c.contradictions

    @property
    def error(self):
        """Says in one sentence why reading ended before the file's end; None if it did not."""
        return self.c.error.decode() if self.c.error[0] else None

    @property
    def truncated(self):
        """Tells whether the file ends inside a block or a record."""
        return self.c.error.startswith(b"file ends inside")

    @property
    def drops(self):
        """Counts the frames that the capturing side says it dropped."""
        return ldma_capfile_dropped(&self.c)

    @property
    def interfaces(self):
        """Lists what the file says about its interfaces so far, in order."""
        cdef uint32_t i
        cdef ldma_capfile_interface *one
        found = []
        for i in range(self.c.interface_count):
            one = &self.c.interfaces[i]
            found.append(Interface(
                one.name.decode(errors="replace"), one.link, one.snaplen, one.frames,
                None if one.received == LDMA_CAPFILE_UNSAID else one.received,
                None if one.dropped == LDMA_CAPFILE_UNSAID else one.dropped,
            ))
        return found

    @property
    def link_types(self):
        """Lists the link types of its interfaces so far, each once, in order."""
        return list(dict.fromkeys(one.link for one in self.interfaces))

    @property
    def warnings(self):
        """Has one sentence for each link type that carried frames which cannot be decoded."""
        frames = {}
        for one in self.interfaces:
            if one.frames and not ldma_link_is_known(one.link):
                frames[one.link] = frames.get(one.link, 0) + one.frames
        return [
            f"link type {link} is not supported: {count} frame{'s' * (count > 1)} skipped"
            for link, count in frames.items()
        ]
