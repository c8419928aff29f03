# SPDX-License-Identifier: BSD-2-Clause
"""Reads and writes the data of regular files. Descriptors are those that `open` gave; positions are
never used."""

from __future__ import annotations

import errno
import os
import time

from livedma.nfs.numbers import NfsError, Stable, Status
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.base import Base
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.metadata import SIZE_MOST
from livedma.nfs.server.store.node import Node

__all__ = ["Content"]

# The most that one COPY copies: the client asks for the rest, and other calls get a turn.
_COPY_MOST = 64 << 20


_BLOCK_MOST = 65536  # bytes of a filesystem's block


_WRITE_FLAGS = {
    Stable.UNSTABLE: 0,
    Stable.DATA_SYNC: os.RWF_DSYNC,
    Stable.FILE_SYNC: os.RWF_SYNC,
}


class Content(Base):
    """Reads and writes data."""

    @translated
    def open(self, node: Node, read: bool, write: bool, owner_may: bool = False) -> int:
        """Opens a regular file for I/O; the caller closes the descriptor.

        The kernel decides by the identity of this thread. `owner_may`: the file's owner is not
        refused for its mode, since an open from before a chmod or a restart stays valid.
        """
        node.want_file()
        flags = (os.O_RDWR if read else os.O_WRONLY) if write else os.O_RDONLY
        # O_NOFOLLOW would refuse the path in /proc; the node stays a regular file.
        flags |= os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        try:
            return os.open(node.path, flags)
        except PermissionError:
            if not owner_may or node.stat().st_uid != self.actor.current.uid:
                raise
        with self.actor.as_server():
            return os.open(node.path, flags)

    @translated
    def read(self, fd: int, offset: int, count: int) -> tuple[bytes, bool]:
        """Returns data, and whether the file ends there."""
        self._be_slow()
        if offset > SIZE_MOST:
            return b"", True
        data = os.pread(fd, min(count, SIZE_MOST - offset), offset)
        return data, offset + len(data) >= os.fstat(fd).st_size

    @translated
    def write(self, fd: int, offset: int, data: bytes | memoryview, stable: Stable) -> int:
        """Writes as stably as asked, and returns how many bytes; fewer than given if space ends."""
        if offset + len(data) > SIZE_MOST:
            raise NfsError(Status.FBIG)
        if not data:
            return 0
        self._be_slow()
        try:
            return os.pwritev(fd, (data,), offset, _WRITE_FLAGS[stable])
        except OSError as failure:
            if stable != Stable.UNSTABLE:
                self._lost(failure)
            raise

    @translated
    def sync(self, fd: int) -> None:
        """Makes all that was written to the file survive a crash."""
        self._be_slow()
        try:
            os.fsync(fd)
        except OSError as failure:
            self._lost(failure)
            raise

    @translated
    def commit(self, node: Node) -> bytes:
        """Does the same for a caller without a descriptor; returns the write verifier.

        It acts as the server: a client that was allowed to write need not be allowed to open again.
        """
        node.want_file()
        with self.actor.as_server():
            try:
                fd = os.open(node.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except PermissionError:
                fd = os.open(node.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.sync(fd)
        finally:
            os.close(fd)
        return self.verifier

    def _be_slow(self) -> None:
        if self.config.store_delay_s:
            time.sleep(self.config.store_delay_s)

    def _lost(self, failure: OSError) -> None:
        # The kernel reports a lost page once, perhaps not to its writer: a new verifier makes all
        # clients write again what was not committed.
        if failure.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            self.write_verifier.renew()

    @translated
    def seek(self, fd: int, offset: int, whence: int) -> tuple[int, bool]:
        """Returns where data or a hole (os.SEEK_DATA, os.SEEK_HOLE) is from `offset` on, and
        whether the file ends there. NXIO from its end on (RFC 7862 §15.11.3).
        """
        size = os.fstat(fd).st_size
        if offset >= size:
            raise NfsError(Status.NXIO)
        try:
            found = os.lseek(fd, offset, whence)
        except OSError as failure:
            if failure.errno == errno.ENXIO:  # No data up to the end is no error here.
                return size, True
            raise
        return found, found >= size

    @translated
    def allocate(self, fd: int, offset: int, length: int) -> None:
        """Reserves space for a range; later writes to other files do not take it."""
        if length == 0:
            raise NfsError(Status.INVAL)
        if offset + length > SIZE_MOST:
            raise NfsError(Status.FBIG)
        syscalls.fallocate(fd, 0, offset, length)

    @translated
    def deallocate(self, fd: int, offset: int, length: int) -> None:
        """Makes a hole of a range; the file keeps its length."""
        if length == 0:
            raise NfsError(Status.INVAL)
        # Up to where the last block may end: filesystems refuse offsets that are too large.
        last = -(-os.fstat(fd).st_size // _BLOCK_MOST) * _BLOCK_MOST
        length = min(length, last - offset)
        if length <= 0:
            return
        mode = syscalls.FALLOC_FL_PUNCH_HOLE | syscalls.FALLOC_FL_KEEP_SIZE
        syscalls.fallocate(fd, mode, offset, length)

    @translated
    def copy(self, source: int, source_at: int, target: int, target_at: int, count: int) -> int:
        """Returns the bytes copied, at least one, and at most what one call should take. `count` 0:
        all from `source_at` on. INVAL beyond the source's end (RFC 7862 §15.2.3).
        """
        size = os.fstat(source).st_size
        if source_at + count > size:
            raise NfsError(Status.INVAL)
        count = min(count or size - source_at, _COPY_MOST)
        if target_at + count > SIZE_MOST:
            raise NfsError(Status.FBIG)
        copied = 0
        while copied < count:
            step = os.copy_file_range(
                source, target, count - copied, source_at + copied, target_at + copied
            )
            if step == 0:  # Another process cut the source short.
                break
            copied += step
        return copied
