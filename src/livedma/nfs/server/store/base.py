# SPDX-License-Identifier: BSD-2-Clause
"""Knows the export's root, and leads from handles to files and back."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from livedma._native.nfs import Changes, WriteVerifier
from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.context import Credential
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.changes import ChangeInfo
from livedma.nfs.server.store.credentials import Actor, Identity, SquashRules
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.handles import Handles, KernelHandles
from livedma.nfs.server.store.node import Kind, Node
from livedma.nfs.server.store.table import TableHandles

__all__ = ["BENEATH", "Base", "Rules"]

# A name leads to an entry of its directory, never to a link's target or another mount.
BENEATH = (
    syscalls.RESOLVE_BENEATH
    | syscalls.RESOLVE_NO_XDEV
    | syscalls.RESOLVE_NO_MAGICLINKS
    | syscalls.RESOLVE_NO_SYMLINKS
)


_U64 = (1 << 64) - 1
_TRIES = 8  # of a lookup that a rename disturbs


class Rules(SquashRules, Protocol):
    """Holds the settings of the server that the store needs."""

    @property
    def read_only(self) -> bool: ...
    @property
    def sync_metadata(self) -> bool: ...
    @property
    def store_delay_s(self) -> float: ...


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _private_mount(path: Path) -> int | None:
    """Opens the directory as the root of a private mount; None if this process may not make one."""
    try:
        tree = syscalls.clone_mount(os.fsencode(path))
    except OSError as failure:
        if failure.errno in (errno.EPERM, errno.ENOSYS, errno.EINVAL):
            return None
        raise
    try:
        return os.open(".", _DIRECTORY, dir_fd=tree)
    finally:
        os.close(tree)


def _handles(fd: int, secret: bytes, actor: Actor) -> KernelHandles | None:
    """Returns the handles of a mount's root. None if it is no such root, its filesystem has no
    handles or too long ones, or this process may not open them.
    """
    try:
        return KernelHandles(secret, fd, actor) if syscalls.is_mount_root(fd) else None
    except OSError:
        return None


def _has_xattrs(path: str) -> bool:
    try:
        os.getxattr(path, "user.livedma")
    except OSError as failure:
        return failure.errno != errno.EOPNOTSUPP
    return True


class Base:
    """Exports a directory and all below it that is on its filesystem.

    A privileged server clones the mount of the directory: other filesystems that are mounted below
    are not in the clone, and clients see the directories that they cover. Without privilege such a
    directory is an entry that no client may enter (ACCESS). A server that may open files by their
    handles, and no more, needs a directory that is a mount of its own; else handles come from a
    table.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        secret: bytes,
        config: Rules,
        changes: Changes | None = None,
        verifier: bytes | None = None,
        by_kernel: bool = True,
    ) -> None:
        """Opens the export. `secret` makes handles; the same secret recognises them after a
        restart. `verifier`: eight bytes that differ from those of the instance before (COMMIT).
        `by_kernel`: handles are the kernel's if possible; else they come from a table.
        """
        self.config = config
        self.changes = changes or Changes()
        self.write_verifier = WriteVerifier(verifier or os.urandom(8))
        self.actor = Actor(config)
        path = Path(root)
        self._root_fd, self.handles = self._enter_export(path, secret, by_kernel)
        self._enter = syscalls.Link(os.O_PATH | os.O_NOFOLLOW, BENEATH)
        self.root = self._node(os.open(f"/proc/self/fd/{self._root_fd}", os.O_PATH | os.O_CLOEXEC))
        self.links_most = os.fpathconf(self._root_fd, "PC_LINK_MAX")
        self.has_xattrs = _has_xattrs(self.root.path)
        self.has_birth = syscalls.birth_ns(self._root_fd) is not None
        number = blake2b(self.root.handle, digest_size=8, key=blake2b(secret).digest()).digest()
        self._fsid = int.from_bytes(number, "big") >> 1

    def _enter_export(self, path: Path, secret: bytes, by_kernel: bool) -> tuple[int, Handles]:
        private = _private_mount(path) if by_kernel else None
        fd = os.open(path, _DIRECTORY) if private is None else private
        handles = _handles(fd, secret, self.actor) if by_kernel else None
        self._has_mounts_below = private is None or handles is None
        if handles is not None:
            return fd, handles
        if private is not None:
            os.close(private)
            fd = os.open(path, _DIRECTORY)
        return fd, TableHandles(secret, fd, self.actor)

    def obey(self, config: Rules) -> None:
        """Sets other rules for calls from now on."""
        self.config = self.actor.rules = config

    def close(self) -> None:
        """Closes the root; nodes that are still held stay usable."""
        if self._root_fd >= 0:
            self.handles.close()
            os.close(self._root_fd)
            self._root_fd = -1

    @property
    def is_persistent(self) -> bool:
        """Tells whether handles survive a restart."""
        return self.handles.is_persistent

    @property
    def verifier(self) -> bytes:
        """Returns the present verifier of WRITE and COMMIT."""
        return self.write_verifier.value

    def acting_as(self, credential: Credential) -> AbstractContextManager[Identity]:
        """Makes this thread act on files as the client until the block ends."""
        return self.actor.acting_as(credential)

    def fsid(self, node_key: tuple[int, int]) -> tuple[int, int]:
        """Returns the same number for the root's filesystem always; subvolumes in it, which have
        inode numbers of their own, also get their device number.
        """
        return self._fsid, 0 if node_key[0] == self.root.key[0] else node_key[0]

    @translated
    def resolve(self, handle: bytes) -> Node:
        """Returns a handle's file: BADHANDLE if it was not made here, STALE if the file is gone."""
        return self._node(self.handles.decode(handle), handle)

    def change(self, node: Node, status: os.stat_result | None = None) -> int:
        """Returns the change attribute."""
        status = status or node.stat()
        return self.changes.value(*node.key, status.st_ctime_ns) & _U64

    def modified(self, node: Node) -> None:
        """Makes the change attribute of a file differ from now on: a client has modified it."""
        self.changes.bump(*node.key, node.stat().st_ctime_ns)

    @contextmanager
    def _changing(self, directory: Node) -> Iterator[_Span]:
        directory.want_directory()
        span = _Span(self.change(directory))
        yield span
        self._settle(directory)
        self.modified(directory)
        span.after = self.change(directory)

    def _settle(self, node: Node) -> None:
        """Makes a change to a file or directory survive a crash, if the settings ask for that."""
        if not self.config.sync_metadata or node.kind not in (Kind.REG, Kind.DIR):
            return
        with self.actor.as_server():
            fd = os.open(node.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _node(self, fd: int, handle: bytes | None = None) -> Node:
        """Returns a node, which owns the descriptor."""
        try:
            status = os.fstat(fd)
        except BaseException:
            os.close(fd)
            raise
        return Node(fd, self.handles, status, handle)

    def _lookup(self, directory: Node, name: bytes) -> Node:
        fd = self._entered(directory, name)
        node = self._node(fd)
        self.handles.found(directory.fd, name, fd)
        return node

    def _entered(self, directory: Node, name: bytes) -> int:
        for _ in range(_TRIES):
            try:
                return self._enter.open(directory.fd, name)
            except OSError as failure:
                # It moved while it was looked up; or the error stays, if it is a mount.
                if failure.errno not in (errno.EXDEV, errno.EAGAIN):
                    raise
        raise NfsError(Status.ACCESS if self._has_mounts_below else Status.DELAY)


class _Span:
    """Notes a directory's change attribute before and after an operation."""

    __slots__ = ("after", "before")

    def __init__(self, before: int) -> None:
        self.before = self.after = before

    @property
    def info(self) -> ChangeInfo:
        return ChangeInfo(self.before, self.after)
