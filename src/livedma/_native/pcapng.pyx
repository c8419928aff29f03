# SPDX-License-Identifier: BSD-2-Clause
"""Writes batches to pcapng files."""
import os
import select

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc
from posix.unistd cimport write

from livedma._native.capfile cimport *
from livedma._native.packet cimport ldma_batch, ldma_packet
from livedma._native.wire cimport Batch

cdef size_t BUFFER_BYTES = 1 << 20


@cython.final
cdef class PcapngWriter:
    """Writes batches to a pcapng file with nanosecond times. interfaces: [(name, link type, snap length)]."""

    cdef int fd
    cdef uint8_t *buffer
    cdef size_t used
    cdef uint64_t first_ns, last_ns
    cdef uint32_t interface_count
    cdef bint closed

    def __cinit__(self, int fd, interfaces, str application="livedma", str hardware=None,
                  str os_name=None):
        cdef size_t n
        self.fd = fd
        self.buffer = <uint8_t *>malloc(BUFFER_BYTES)
        if self.buffer == NULL:
            raise MemoryError
        if os_name is None:
            system = os.uname()
            os_name = f"{system.sysname} {system.release}"
            hardware = hardware or system.machine
        self.used = ldma_pcapng_section(self.buffer, BUFFER_BYTES, (hardware or "").encode(),
                                        os_name.encode(), application.encode())
        for name, link, snaplen in interfaces:
            n = ldma_pcapng_interface(self.buffer + self.used, BUFFER_BYTES - self.used,
                                      link, snaplen, os.fsencode(name))
            if n == 0:
                raise ValueError("too many interfaces")
            self.used += n
            self.interface_count += 1
        if self.interface_count == 0:
            raise ValueError("a capture file needs at least one interface")
        self.flush()

    def __dealloc__(self):
        free(self.buffer)

    def write(self, Batch batch not None, uint32_t interface=0):
        """Writes the batch's packets in order: a batch of up to a MiB takes one write."""
        cdef uint32_t i = 0, count = batch.c.count
        if self.closed:
            raise ValueError("the file is closed")
        if interface >= self.interface_count:
            raise IndexError(f"interface {interface} of {self.interface_count}")
        if count and self.first_ns == 0:
            self.first_ns = batch.c.packets[0].time_ns
        while i < count:
            with nogil:
                i = self.pack(batch.c, i, interface)
            if i < count and self.used == 0:
                raise ValueError(f"packet of {batch.c.packets[i].captured} bytes is too large")
            self.flush()

    cdef uint32_t pack(self, ldma_batch *batch, uint32_t i, uint32_t interface) noexcept nogil:
        """Appends packets from i on while they fit. Returns the first that does not."""
        cdef ldma_pcapng_packet_c packet
        cdef const ldma_packet *source
        cdef size_t n
        packet.interface = interface
        while i < batch.count:
            source = &batch.packets[i]
            packet.frame = source.frame
            packet.time_ns = source.time_ns
            packet.captured = source.captured
            packet.length = source.length
            packet.direction = source.direction
            n = write_packet(self.buffer + self.used, BUFFER_BYTES - self.used, &packet)
            if n == 0:
                break
            self.used += n
            if source.time_ns > self.last_ns:
                self.last_ns = source.time_ns
            i += 1
        return i

    cdef int flush(self) except -1:
        cdef size_t done = 0
        cdef ssize_t got
        cdef int error
        while done < self.used:
            error = 0
            with nogil:
                got = write(self.fd, self.buffer + done, self.used - done)
                if got < 0:
                    error = errno
            if got >= 0:
                done += got
                continue
            PyErr_CheckSignals()
            if error == EAGAIN:
                select.select((), (self.fd,), (), 1.0)
            elif error != EINTR:
                self.used = 0
                raise OSError(error, os.strerror(error))
        self.used = 0
        return 0

    def close(self, received=(), dropped=()):
        """Ends the file with statistics: frames seen and dropped, one number per interface. The descriptor stays open."""
        cdef ldma_pcapng_statistics_c statistics
        if self.closed:
            return
        self.closed = True
        statistics.time_ns = self.last_ns
        statistics.start_ns = self.first_ns
        statistics.end_ns = self.last_ns
        statistics.dropped_later = 0
        for i, (seen, lost) in enumerate(zip(received, dropped, strict=True)):
            statistics.interface = i
            statistics.received = seen
            statistics.dropped = lost
            self.used += write_statistics(self.buffer + self.used, BUFFER_BYTES - self.used,
                                          &statistics)
        self.flush()
