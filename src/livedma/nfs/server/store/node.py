# SPDX-License-Identifier: BSD-2-Clause
"""Holds a file, directory or other inode, so that it stays the same."""

from __future__ import annotations

import os
import stat
from enum import IntEnum
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Status

if TYPE_CHECKING:
    from livedma.nfs.server.store.handles import Handles

__all__ = ["Kind", "Node"]


class Kind(IntEnum):
    """Has those values of nfs_ftype4 that filesystems have."""

    REG = 1
    DIR = 2
    BLK = 3
    CHR = 4
    LNK = 5
    SOCK = 6
    FIFO = 7


_KINDS = {
    stat.S_IFREG: Kind.REG,
    stat.S_IFDIR: Kind.DIR,
    stat.S_IFBLK: Kind.BLK,
    stat.S_IFCHR: Kind.CHR,
    stat.S_IFLNK: Kind.LNK,
    stat.S_IFSOCK: Kind.SOCK,
    stat.S_IFIFO: Kind.FIFO,
}


class Node:
    """Pins an inode: `fd` (O_PATH) refers to it as long as the node lives, whatever its names do.

    `key` is (device, inode): equal for nodes of the same file. O_PATH opens nothing, so a FIFO or
    device is as harmless as any other file.
    """

    __slots__ = ("__weakref__", "_handle", "_handles", "fd", "key", "kind")

    def __init__(
        self, fd: int, handles: Handles, status: os.stat_result, handle: bytes | None = None
    ) -> None:
        """Takes `fd` over."""
        self.fd = fd
        self.key = (status.st_dev, status.st_ino)
        self.kind = _KINDS[stat.S_IFMT(status.st_mode)]
        self._handles = handles
        self._handle = handle

    def __del__(self) -> None:
        os.close(self.fd)

    def __repr__(self) -> str:
        return f"<Node {self.kind.name} {self.key[0]:x}:{self.key[1]}>"

    @property
    def handle(self) -> bytes:
        """Returns its handle: at most 64 bytes, the same after a rename and a restart."""
        if self._handle is None:
            self._handle = self._handles.encode(self.fd)
        return self._handle

    @property
    def path(self) -> str:
        """Returns a path for calls that need one; it leads to this inode and nothing else."""
        return f"/proc/self/fd/{self.fd}"

    def stat(self) -> os.stat_result:
        """Returns the inode's present status."""
        return os.fstat(self.fd)

    def want_directory(self) -> None:
        """Raises unless it is a directory (RFC 8881 §18.13: a link to one is SYMLINK)."""
        if self.kind != Kind.DIR:
            raise NfsError(Status.SYMLINK if self.kind == Kind.LNK else Status.NOTDIR)

    def want_file(self) -> None:
        """Raises unless it is a regular file: only that has data (RFC 8881 §18.22, §18.32)."""
        if self.kind == Kind.DIR:
            raise NfsError(Status.ISDIR)
        if self.kind != Kind.REG:
            raise NfsError(Status.SYMLINK if self.kind == Kind.LNK else Status.WRONG_TYPE)
