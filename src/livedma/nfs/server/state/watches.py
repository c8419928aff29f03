# SPDX-License-Identifier: BSD-2-Clause
"""Watches of files' attributes and names (inotify(7)): a lease does not hold up those changes.

The news comes after the change; so this is for what a client may believe a little longer than it
is true, never for data.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

__all__ = ["Watches"]

_IN_ATTRIB = 0x4  # also of links that come and go
_IN_MOVE_SELF = 0x800
_IN_Q_OVERFLOW = 0x4000
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("@iIII")
_READ_BYTES = 64 << 10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


class Watches:
    """Watches files for changes. fd: readable when something has changed."""

    def __init__(self) -> None:
        self.fd = _checked(_libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))

    def add(self, fd: int) -> int | None:
        """Returns the file's watch, one for all its descriptors; None if it can have none."""
        path = f"/proc/self/fd/{fd}".encode()
        number: int = _libc.inotify_add_watch(self.fd, path, _IN_ATTRIB | _IN_MOVE_SELF)
        return None if number < 0 else number

    def remove(self, number: int) -> None:
        """Ends a watch."""
        _libc.inotify_rm_watch(self.fd, number)

    def changed(self) -> set[int] | None:
        """Returns the watches that have changed since the last call; None if there are too many."""
        numbers: set[int] = set()
        is_all = False
        while events := self._read():
            pos = 0
            while pos < len(events):
                number, mask, _, name_bytes = _EVENT.unpack_from(events, pos)
                pos += _EVENT.size + name_bytes
                is_all |= bool(mask & _IN_Q_OVERFLOW)
                if mask & (_IN_ATTRIB | _IN_MOVE_SELF):
                    numbers.add(number)
        return None if is_all else numbers

    def _read(self) -> bytes:
        try:
            return os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Ends all watches."""
        os.close(self.fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, os.strerror(number))
    return result
