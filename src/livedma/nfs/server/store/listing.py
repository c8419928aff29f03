# SPDX-License-Identifier: BSD-2-Clause
"""Reads directories by the filesystem's own positions.

A cookie is the position of the next entry (d_off). Filesystems that can be exported keep it valid
while entries come and go, also over a restart. So a cookie needs no verifier, and the server need
not remember anything for a client that returns after a day.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.base import Base
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.node import Node

__all__ = ["Entry", "Listing"]

_RECORD = struct.Struct("=QqHB")  # struct linux_dirent64: inode, next position, length, type
_BUFFER_BYTES = 32768
_DOTS = (b".", b"..")

# Positions 0 to 2 cannot be cookies: 0 is the beginning, and 1 and 2 are reserved (RFC 8881
# §18.23.3). No filesystem has entries at their stand-ins, just below the last position.
_RESERVED = 3
_STAND_IN = 0x7FFFFFFF_FFFFFFF0


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes an entry of a directory; `cookie` is where the next entry begins."""

    name: bytes
    inode: int
    cookie: int


class Listing(Base):
    """Lists directories."""

    @contextmanager
    def reading(self, directory: Node, cookie: int) -> Iterator[Iterator[Entry]]:
        """Yields all entries behind a cookie, in the filesystem's order, without `.` and `..`."""
        fd = self._open_directory(directory, cookie)
        try:
            yield _entries(fd)
        finally:
            os.close(fd)

    @translated
    def _open_directory(self, directory: Node, cookie: int) -> int:
        directory.want_directory()
        if 0 < cookie < _RESERVED:
            raise NfsError(Status.BAD_COOKIE)
        position = cookie & ~_STAND_IN if _is_stand_in(cookie) else cookie
        fd = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if position:
                os.lseek(fd, position, os.SEEK_SET)
        except (OSError, OverflowError) as failure:
            os.close(fd)
            if isinstance(failure, OverflowError) or failure.errno == errno.EINVAL:
                raise NfsError(Status.BAD_COOKIE) from None
            raise
        return fd


def _is_stand_in(cookie: int) -> bool:
    return _STAND_IN <= cookie < _STAND_IN + _RESERVED


def _cookie(position: int) -> int:
    return position if position >= _RESERVED else _STAND_IN + position


def _entries(fd: int) -> Iterator[Entry]:
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    while length := _fill(fd, buffer):
        records = ctypes.string_at(buffer, length)
        at = 0
        while at < length:
            inode, position, size, _ = _RECORD.unpack_from(records, at)
            start = at + _RECORD.size
            name = records[start : records.index(0, start)]
            at += size
            if name not in _DOTS:
                yield Entry(name, inode, _cookie(position))


@translated
def _fill(fd: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    return syscalls.entries(fd, buffer)
