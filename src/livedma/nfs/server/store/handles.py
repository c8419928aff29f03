# SPDX-License-Identifier: BSD-2-Clause
"""Makes filehandles that clients keep, and finds a file again by its own.

A handle is a version, a scheme, that scheme's bytes, and a MAC over these, the export's root and a
secret. Without the secret it cannot be made, nor can one of another export be used.

The scheme of privileged servers (`KernelHandles`) is the filesystem's own handle: it survives
renames and restarts, and holds the inode's generation, so that a new file with an old number is not
taken for the old one. Servers that may not open by handle, and filesystems that have none, use a
table (`livedma.nfs.server.store.table`).
"""

from __future__ import annotations

import errno
import hmac
import os
import stat
import struct
from hashlib import blake2b
from typing import Protocol

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.credentials import Actor

__all__ = ["HANDLE_MOST", "Handles", "KernelHandles", "Seal"]

HANDLE_MOST = 64  # RFC 8881 allows 128; NFSv3 allowed this, and it is enough
MAC_BYTES = 16

_VERSION = 1
_KERNEL = 1
_KERNEL_KIND = struct.Struct(">i")
_HEADER_BYTES = 2


class Seal:
    """Makes handles of one scheme, and recognises its own."""

    def __init__(self, secret: bytes, root: bytes, scheme: int) -> None:
        self._header = bytes((_VERSION, scheme))
        self._mac = blake2b(
            root, digest_size=MAC_BYTES, key=blake2b(secret).digest(), person=b"livedma-handle"
        )

    def _digest(self, body: bytes) -> bytes:
        mac = self._mac.copy()
        mac.update(body)
        return mac.digest()

    def close(self, opaque: bytes) -> bytes:
        """Returns the handle that holds `opaque`."""
        body = self._header + opaque
        if len(body) + MAC_BYTES > HANDLE_MOST:
            raise syscalls.HandleTooLong(f"{len(opaque)} bytes")
        return body + self._digest(body)

    def open(self, handle: bytes) -> bytes:
        """Returns what is in a handle; BADHANDLE if it was not made here."""
        body, mac = handle[:-MAC_BYTES], handle[-MAC_BYTES:]
        is_own = len(handle) <= HANDLE_MOST and body[:_HEADER_BYTES] == self._header
        if not is_own or not hmac.compare_digest(mac, self._digest(body)):
            raise NfsError(Status.BADHANDLE)
        return body[_HEADER_BYTES:]


class Handles(Protocol):
    """Turns files into handles and back."""

    is_persistent: bool

    def encode(self, fd: int) -> bytes:
        """Returns the handle of an O_PATH descriptor's file."""

    def decode(self, handle: bytes) -> int:
        """Opens a handle's file (O_PATH); BADHANDLE if not made here, STALE if it is gone."""

    def parent(self, fd: int) -> int:
        """Returns the directory above one that is not the root; never one outside the export."""

    def found(self, directory: int, name: bytes, fd: int) -> None:
        """Notes that `name` led to `fd`."""

    def gone(self, directory: int, name: bytes) -> None:
        """Notes that `name` leads to nothing any more."""

    def close(self) -> None:
        """Closes its descriptors."""


class KernelHandles:
    """Makes handles of the filesystem, below the root of a mount of its own.

    A directory that was moved out of the export is STALE: the kernel can tell from its parents. It
    knows no parents of other files, which may have several: a handle that a client got while the
    file was in the export stays good, and is subject to the file's own permissions, until the file
    is removed. So do handles of any NFS server that does not check subtrees.
    """

    is_persistent = True

    def __init__(self, secret: bytes, root: int, actor: Actor) -> None:
        """Finds files by their handles. `root`: an open directory, the root of its mount. OSError
        if the kernel refuses.
        """
        kind, opaque = syscalls.handle_of(root)
        self._seal = Seal(secret, _KERNEL_KIND.pack(kind) + opaque, _KERNEL)
        self._root, self._actor = root, actor
        status = os.fstat(root)
        self._root_key = status.st_dev, status.st_ino
        self._up = syscalls.Link(
            os.O_PATH | os.O_DIRECTORY,
            syscalls.RESOLVE_NO_XDEV
            | syscalls.RESOLVE_NO_MAGICLINKS
            | syscalls.RESOLVE_NO_SYMLINKS,
        )
        os.close(self.decode(self.encode(root)))

    def encode(self, fd: int) -> bytes:
        kind, opaque = syscalls.handle_of(fd)
        return self._seal.close(_KERNEL_KIND.pack(kind) + opaque)

    def decode(self, handle: bytes) -> int:
        opaque = self._seal.open(handle)
        (kind,) = _KERNEL_KIND.unpack_from(opaque)
        with self._actor.as_server():
            try:
                fd = syscalls.open_by_handle(self._root, kind, opaque[_KERNEL_KIND.size :])
            except OSError as failure:
                # The filesystem made this handle once, and cannot make sense of it any more.
                if failure.errno in (errno.ESTALE, errno.EINVAL, errno.ENOENT):
                    raise NfsError(Status.STALE) from None
                raise
            try:
                self._check_inside(fd)
            except BaseException:
                os.close(fd)
                raise
        return fd

    def _check_inside(self, fd: int) -> None:
        status = os.fstat(fd)
        is_root = (status.st_dev, status.st_ino) == self._root_key
        if is_root or not stat.S_ISDIR(status.st_mode):
            return
        try:
            os.close(self._up.open(fd, b".."))
        except FileNotFoundError:  # Not below the root, or removed.
            raise NfsError(Status.STALE) from None

    def parent(self, fd: int) -> int:
        return self._up.open(fd, b"..")

    def found(self, directory: int, name: bytes, fd: int) -> None:
        """Does nothing: the filesystem knows."""

    def gone(self, directory: int, name: bytes) -> None:
        """Does nothing: the filesystem knows."""

    def close(self) -> None:
        """Does nothing: the root belongs to the caller."""
