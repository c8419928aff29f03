# SPDX-License-Identifier: BSD-2-Clause
"""Reads events of the process's pools, in batches. Contracts are in memory/pool_log.h."""
from typing import NamedTuple

from cpython.bytearray cimport PyByteArray_AsString
from libc.errno cimport EBUSY
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from livedma._native.pool cimport (
    LDMA_POOL_EVENT_COUNT, LDMA_POOL_NONE, ldma_pool_event, ldma_pool_event_names,
    ldma_pool_log_attach, ldma_pool_log_detach, ldma_pool_log_read, process_log,
)

EVENTS = tuple([ldma_pool_event_names[i].decode() for i in range(LDMA_POOL_EVENT_COUNT)])
NONE = LDMA_POOL_NONE


class PoolEvent(NamedTuple):
    """Describes an event of a pool, a shard or a buffer."""

    time_ns: int
    event: str
    pool: int
    shard: int | None
    buffer: int | None
    control: bool
    value: int


cdef object or_none(uint32_t number):
    return None if number == LDMA_POOL_NONE else number


cdef class EventReader:
    """Reads the events of all pools of the process, from now on. There is one reader at a time."""

    cdef bint is_open
    cdef readonly uint64_t lost

    def __cinit__(self, uint32_t capacity=65536):
        cdef int result = ldma_pool_log_attach(process_log(), capacity)
        if result == -EBUSY:
            raise ValueError("the events of this process's pools have a reader already")
        if result:
            raise MemoryError
        self.is_open = True

    def __dealloc__(self):
        self.close()

    def close(self):
        """Ends the reading: no event is kept from now on. Calling it again has no effect."""
        if self.is_open:
            self.is_open = False
            ldma_pool_log_detach(process_log())

    cdef uint32_t fill(self, ldma_pool_event *events, uint32_t limit) noexcept:
        return ldma_pool_log_read(process_log(), events, limit, &self.lost) if self.is_open else 0

    def read(self, uint32_t limit=1024):
        """Returns up to limit events, the oldest first."""
        cdef ldma_pool_event *events = <ldma_pool_event *>malloc(limit * sizeof(ldma_pool_event))
        cdef uint32_t i
        if events == NULL:
            raise MemoryError
        try:
            return [
                PoolEvent(
                    events[i].time_ns, EVENTS[events[i].kind], events[i].pool,
                    or_none(events[i].shard), or_none(events[i].buffer), events[i].is_control != 0,
                    events[i].value,
                )
                for i in range(self.fill(events, limit))
            ]
        finally:
            free(events)

    def read_columns(self, uint32_t limit=65536):
        """Returns up to limit events by column: (count, bytes of each field in the order of PoolEvent, `event` by its
        place in EVENTS)."""
        cdef ldma_pool_event *events = <ldma_pool_event *>malloc(limit * sizeof(ldma_pool_event))
        cdef uint32_t i, count
        if events == NULL:
            raise MemoryError
        try:
            count = self.fill(events, limit)
            columns = [bytearray(count * size) for size in (8, 1, 4, 4, 4, 1, 8)]
            for i in range(count):
                (<uint64_t *>PyByteArray_AsString(columns[0]))[i] = events[i].time_ns
                (<uint8_t *>PyByteArray_AsString(columns[1]))[i] = events[i].kind
                (<uint32_t *>PyByteArray_AsString(columns[2]))[i] = events[i].pool
                (<uint32_t *>PyByteArray_AsString(columns[3]))[i] = events[i].shard
                (<uint32_t *>PyByteArray_AsString(columns[4]))[i] = events[i].buffer
                (<uint8_t *>PyByteArray_AsString(columns[5]))[i] = events[i].is_control
                (<uint64_t *>PyByteArray_AsString(columns[6]))[i] = events[i].value
            return count, columns
        finally:
            free(events)
