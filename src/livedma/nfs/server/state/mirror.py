# SPDX-License-Identifier: BSD-2-Clause
"""Shows clients' locks to local processes, and local processes' locks to clients.

A file that clients lock has one more descriptor. That has a lock (of the open file description,
fcntl's OFD) wherever a client has one: what local processes lock is then in the way of clients,
and the other way round. Among clients the server's own table decides, which tells them apart.

fcntl knows offsets up to 2^63 - 1; the mirror ignores what lies behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from dataclasses import dataclass

from livedma.nfs.server.state.byteranges import LAST
from livedma.nfs.server.state.held import Held
from livedma.nfs.server.state.shares import READ, WRITE

__all__ = ["LocalLock", "Mirror", "local_lock"]

_FLOCK = struct.Struct("@hhqqi4x")
_OFFSET_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LocalLock:
    """Describes a range that a process of this machine has locked."""

    first: int
    last: int
    is_exclusive: bool


class Mirror:
    """Mirrors locks on the descriptor `held`: exclusive ones if it can write, shared ones if it can
    read. If the filesystem refuses to lock at all, local processes see no lock either.
    """

    def __init__(self, held: Held) -> None:
        self.held = held

    def lock(self, first: int, last: int, is_exclusive: bool) -> bool:
        """Shows a lock in place of what was shown there; False if a local lock is in the way."""
        if first > _OFFSET_MOST or not self.held.access & (WRITE if is_exclusive else READ):
            return True
        kind = fcntl.F_WRLCK if is_exclusive else fcntl.F_RDLCK
        try:
            fcntl.fcntl(self.held.fd, fcntl.F_OFD_SETLK, _packed(kind, first, last))
        except (BlockingIOError, PermissionError):  # POSIX lets it be EAGAIN or EACCES.
            return False
        except OSError:
            return True
        return True

    def unlock(self, first: int, last: int) -> None:
        """Removes what is shown there: no client has a lock there any more."""
        if first <= _OFFSET_MOST:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.held.fd, fcntl.F_OFD_SETLK, _packed(fcntl.F_UNLCK, first, last))

    def in_the_way(self, first: int, last: int, is_exclusive: bool) -> LocalLock | None:
        """Returns a lock of a local process that a client's lock would conflict with."""
        return local_lock(self.held.fd, first, last, is_exclusive)


def local_lock(fd: int, first: int, last: int, is_exclusive: bool) -> LocalLock | None:
    """Returns a conflicting lock of another holder; `fd` has no lock itself."""
    if first > _OFFSET_MOST:
        return None
    asked = _packed(fcntl.F_WRLCK if is_exclusive else fcntl.F_RDLCK, first, last)
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return None
    kind, _, start, length, _ = _FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return None
    return LocalLock(start, start + length - 1 if length else LAST, kind == fcntl.F_WRLCK)


def _packed(kind: int, first: int, last: int) -> bytes:
    length = 0 if last >= _OFFSET_MOST else last - first + 1
    return _FLOCK.pack(kind, os.SEEK_SET, first, length, 0)
