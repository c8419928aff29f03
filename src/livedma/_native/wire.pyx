"""Packets in batches: decoded, encoded, printed."""
from livedma._native.packet cimport *


cdef class Batch:
    """A bounded number of decoded packets. Reused: filling it again invalidates what was read from it."""

    def __cinit__(self, uint32_t capacity=2048, size_t frame_bytes=0):
        self.c = ldma_batch_create(capacity, frame_bytes)
        if self.c == NULL:
            raise MemoryError

    def __dealloc__(self):
        ldma_batch_destroy(self.c)

    def __len__(self):
        return self.c.count

    @property
    def other(self):
        """Frames of the last fill that were not RoCE."""
        return self.c.other

    def reset(self):
        ldma_batch_reset(self.c)

    def add(self, uint32_t link, uint64_t time_ns, uint8_t direction, const uint8_t[::1] frame,
            uint32_t length):
        """Copy and decode one frame. Returns whether there was room for it."""
        cdef const uint8_t *p = &frame[0] if frame.shape[0] else NULL
        return ldma_batch_add_copy(self.c, link, time_ns, direction, p, frame.shape[0], length)
