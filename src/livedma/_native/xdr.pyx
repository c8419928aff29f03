# SPDX-License-Identifier: BSD-2-Clause
"""Reads XDR; `livedma.wire.xdr` is its public name."""
from cpython.bytes cimport PyBytes_AsString

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "base/bytes.h" nogil:
    uint32_t get32(const uint8_t *p)
    uint64_t get64(const uint8_t *p)


class Malformed(ValueError):
    """Reports bytes that break the format. `what` is the reason, `at` the offset of the first wrong byte."""

    def __init__(self, what, at):
        super().__init__(f"{what} at byte {at}")
        self.what = what
        self.at = at


class Short(Malformed):
    """Reports that the bytes end before the item that starts at `at` does."""


cdef class Reader:
    """Moves a cursor over `data[pos:]`. Each method moves it past one item or raises.

    `pos` counts from the start of `data`, so that error offsets are payload offsets. A method
    that raises leaves `pos` where the item that failed starts.
    """

    cdef readonly bytes data
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t pos

    def __cinit__(self, bytes data not None, Py_ssize_t pos=0):
        self.data = data
        self.end = len(data)
        if not 0 <= pos <= self.end:
            raise Short("bytes end before the start", pos)
        self.pos = pos

    @property
    def left(self):
        """Counts the bytes that are not read yet."""
        return self.end - self.pos

    cdef const uint8_t *take(self, Py_ssize_t length, str what) except NULL:
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AsString(self.data) + self.pos
        if length > self.end - self.pos:
            raise Short(f"bytes end inside {what}", self.pos)
        self.pos += length
        return p

    cpdef uint32_t u32(self) except? 0xdead0bad:
        """Reads an unsigned 32-bit integer (also an enum or a bool, if any value is allowed)."""
        return get32(self.take(4, "a 4-byte word"))

    def peek(self):
        """Returns the unsigned 32-bit integer that u32 would read, without moving."""
        cdef uint32_t value = self.u32()
        self.pos -= 4
        return value

    def u64(self):
        """Reads an unsigned 64-bit integer."""
        return get64(self.take(8, "an 8-byte word"))

    def boolean(self):
        """Reads a bool; any word but 0 and 1 is malformed."""
        cdef uint32_t value = self.u32()
        if value > 1:
            raise Malformed(f"boolean is {value:#x}", self.pos - 4)
        return value == 1

    cpdef fixed(self, uint64_t length):
        """Reads opaque data of a fixed length, without its padding."""
        cdef Py_ssize_t pos = self.pos
        self.skip(length)
        return self.data[pos : pos + <Py_ssize_t>length]

    cpdef skip(self, uint64_t length):
        """Moves past `length` bytes and their padding to a multiple of four."""
        cdef uint64_t left = <uint64_t>(self.end - self.pos)
        cdef uint64_t padding = -length & 3
        if length > left or padding > left - length:
            raise Short(f"bytes end inside {length} bytes of data", self.pos)
        self.pos += <Py_ssize_t>(length + padding)

    def opaque(self, uint64_t most=0xffffffff):
        """Reads opaque data of variable length; a length word above `most` is malformed."""
        cdef Py_ssize_t start = self.pos
        cdef uint32_t length = self.u32()
        if length > most:
            raise Malformed(f"length {length} is above {most}", start)
        try:
            return self.fixed(length)
        except Short:
            self.pos = start
            raise

    def text(self, uint64_t most=0xffffffff):
        """Reads a string; bytes that are not UTF-8 become escapes."""
        return self.opaque(most).decode("utf-8", "backslashreplace")
