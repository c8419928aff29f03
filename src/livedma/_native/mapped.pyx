# SPDX-License-Identifier: BSD-2-Clause
"""Receive buffers that are mapped in different ways, to compare them. Contracts are in memory/mapped.h."""
cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EEXIST
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t

from livedma._native.mapped cimport *
from livedma._native.rdma cimport Engine, ProtectionDomain, check, ldma_device_iova, random_key


@cython.no_gc_clear  # what it holds must outlive it
cdef class Mapped:
    """Maps the buffers of one connection: those of one mapping lie together. The memory of a mapping comes in pieces
    of piece_size (0: it is one piece). per_use: a buffer is mapped when it is taken, not before."""

    def __init__(self, Engine engine not None, uint32_t buffers, uint32_t buffer_size,
                 uint64_t mapping_size, *, ProtectionDomain pd=None, uint64_t piece_size=0,
                 bint per_use=False):
        """Makes and maps them. OSError: ENOSPC, the device has no such range of addresses; ENOMEM; EINVAL."""
        cdef ProtectionDomain domain = engine.domain if pd is None else pd
        cdef ldma_pd *c = domain.live()
        cdef ldma_iova *iova = ldma_device_iova(engine.c)
        cdef ldma_mapped *made = NULL
        cdef ldma_mapped_config config
        cdef int result = -EEXIST
        cdef uint32_t key
        if self.engine is not None:
            raise ValueError("the buffers are there already")
        config.buffers, config.buffer_bytes = buffers, buffer_size
        config.mapping_bytes, config.piece_bytes = mapping_size, piece_size or mapping_size
        config.is_per_use = per_use
        while result == -EEXIST:
            key = random_key()
            engine.acquire()
            with nogil:
                result = ldma_mapped_create(iova, c, &config, key, &made)
            engine.release()
        check(result)
        self.c, self.engine, self.domain, self.pieces = made, engine, domain, made.window.pieces
        engine.children.add(self)

    def __dealloc__(self):
        if self.c != NULL:
            self.engine.acquire()
            ldma_mapped_destroy(self.c)
            self.engine.release()

    cdef ldma_mapped *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the buffers are closed")
        return self.c

    def close(self):
        """Unmaps them. Returns the nanoseconds that it took; a second call has no effect, and returns 0."""
        cdef uint64_t unmap_ns
        if self.c == NULL:
            return 0
        self.engine.acquire()
        ldma_mapped_unmap(self.c)
        unmap_ns = self.c.unmap_ns
        ldma_mapped_destroy(self.c)
        self.engine.release()
        self.c = NULL
        return unmap_ns

    @property
    def address(self):
        """Is the lowest address of the memory in this process."""
        return <uintptr_t>self.live().memory

    @property
    def length(self):
        """Counts the bytes of memory, in whole mappings."""
        return self.live().length

    @property
    def mappings(self):
        """Counts the mappings that were made so far."""
        return self.live().mappings

    @property
    def memory_ns(self):
        """Is the processor time to find the memory and fill it with zeros."""
        return self.live().memory_ns

    @property
    def map_ns(self):
        """Is the processor time to map it, and to put its buffers into the pool."""
        return self.live().map_ns


def receive(connections, const uint8_t[::1] data not None, uint64_t messages):
    """Receives messages with this content on all connections in turn, without a wire. Returns the nanoseconds of the
    host (buffers returned, taken and posted) and of the device (messages written). All are of one engine."""
    cdef uint32_t count = len(connections), i
    cdef ldma_mapped **each
    cdef ldma_mapped_times found
    cdef Engine engine
    cdef uint32_t length = data.shape[0]
    cdef int result
    if not count or not length:
        raise ValueError("there is something to receive, on at least one connection")
    engine = (<Mapped?>connections[0]).engine
    for one in connections:
        (<Mapped?>one).live()
        if (<Mapped>one).engine is not engine:
            raise ValueError("the connections are of one engine")
    each = <ldma_mapped **>PyMem_Calloc(count, sizeof(ldma_mapped *))
    if each == NULL:
        raise MemoryError
    for i in range(count):
        each[i] = (<Mapped>connections[i]).c
    engine.acquire()
    with nogil:
        result = ldma_mapped_receive(each, count, &data[0], length, messages, &found)
    engine.release()
    PyMem_Free(each)
    check(result)
    return found.host_ns, found.device_ns
