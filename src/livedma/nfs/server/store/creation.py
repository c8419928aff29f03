# SPDX-License-Identifier: BSD-2-Clause
"""Makes new files in the filesystem, for OPEN and CREATE."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace

from livedma.nfs.numbers import CreateMode, NfsError, Status
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.base import BENEATH
from livedma.nfs.server.store.changes import ChangeInfo
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.metadata import Metadata
from livedma.nfs.server.store.names import checked_name
from livedma.nfs.server.store.node import Kind, Node
from livedma.nfs.server.store.settings import NOTHING, Settings
from livedma.nfs.server.store.tree import Tree

__all__ = ["CreateHow", "Created", "Creation"]

_MODE = 0o600  # if the client gives none
_TRIES = 8  # to make or to find a file that another process makes and removes
_WORD = 0x7FFFFFFF  # of a verifier: seconds that every filesystem can keep


_FORMATS = {
    Kind.BLK: stat.S_IFBLK,
    Kind.CHR: stat.S_IFCHR,
    Kind.SOCK: stat.S_IFSOCK,
    Kind.FIFO: stat.S_IFIFO,
}


@dataclass(frozen=True, slots=True)
class CreateHow:
    """Holds createhow4 without the attributes."""

    mode: CreateMode
    verifier: bytes = b""

    @property
    def is_exclusive(self) -> bool:
        return self.mode in (CreateMode.EXCLUSIVE, CreateMode.EXCLUSIVE_1)


@dataclass(slots=True)
class Created:
    """Holds the result. `fd`: of a new file, open for reading and writing, whatever its mode says;
    the caller closes it. `settings`: what was set, if the file is new."""

    node: Node
    change: ChangeInfo
    is_new: bool
    fd: int | None = None
    settings: Settings = NOTHING


class Creation(Tree, Metadata):
    """Makes regular files and other entries."""

    @translated
    def create_node(
        self,
        directory: Node,
        name: bytes,
        kind: Kind,
        settings: Settings,
        target: bytes = b"",
        device: tuple[int, int] = (0, 0),
    ) -> tuple[Node, ChangeInfo]:
        """Makes an entry that is no regular file; `target` of a link, `device` of a device."""
        name = checked_name(name)
        if kind == Kind.REG:
            raise NfsError(Status.BADTYPE)
        mode = self._first_mode(directory, settings, 0o700 if kind == Kind.DIR else _MODE)
        with self._changing(directory) as change:
            if kind == Kind.DIR:
                mode &= 0o1777
                os.mkdir(name, mode, dir_fd=directory.fd)
            elif kind == Kind.LNK:
                os.symlink(target, name, dir_fd=directory.fd)
            else:
                number = os.makedev(*device)
                os.mknod(name, _FORMATS[kind] | mode, number, dir_fd=directory.fd)
            node = self._lookup(directory, name)
            if node.kind != kind:  # Another process was faster, in a shared directory.
                raise NfsError(Status.NOENT)
            self._set_new(node, None, settings, mode)
        return node, change.info

    @translated
    def create_file(
        self, directory: Node, name: bytes, how: CreateHow, settings: Settings
    ) -> Created:
        """Makes a file, or finds the one that is there already if `how` allows that.

        An old file is left as it is, even if `settings` ask to cut it to nothing: the caller, which
        knows of share reservations, finds out whether that may be.

        The verifier of an exclusive create is kept in the file's times, as seconds: a client that
        sends the request again, even after a restart, finds the file that it made before. Clients
        are told that these times were set, and correct them afterwards.
        """
        name = checked_name(name)
        if how.is_exclusive:
            accessed_ns, modified_ns = _times_of(how.verifier)
            settings = replace(settings, accessed_ns=accessed_ns, modified_ns=modified_ns)
        directory.want_directory()
        mode = self._first_mode(directory, settings, _MODE) & 0o777
        for _ in range(_TRIES):
            with self._changing(directory) as change:
                fd = self._make_file(directory, name, mode)
                if fd is not None:
                    node = self._fill(directory, name, fd, settings, mode)
            if fd is not None:
                return Created(node, change.info, True, fd, settings)
            with suppress(FileNotFoundError):  # The file was there, and was removed since.
                return self._found(self._lookup(directory, name), how, change.info)
        raise NfsError(Status.DELAY)

    def _found(self, node: Node, how: CreateHow, change: ChangeInfo) -> Created:
        if how.mode == CreateMode.GUARDED or (how.is_exclusive and not _has(node, how.verifier)):
            raise NfsError(Status.EXIST)
        return Created(node, change, False)

    def _make_file(self, directory: Node, name: bytes, mode: int) -> int | None:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW
        try:
            return syscalls.open_at(directory.fd, name, flags, mode, BENEATH)
        except FileExistsError:
            return None

    def _fill(self, directory: Node, name: bytes, fd: int, settings: Settings, mode: int) -> Node:
        try:
            node = self._node(os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC))
            self.handles.found(directory.fd, name, fd)
            self._set_new(node, fd, settings, mode)
        except BaseException:
            os.close(fd)
            # The client would not want to find a file without the attributes it asked for.
            with suppress(OSError):
                os.unlink(name, dir_fd=directory.fd)
            raise
        return node

    def _set_new(self, node: Node, fd: int | None, settings: Settings, made: int) -> None:
        """Sets what could not be said when the file was made, with the mode `made`."""
        wanted = settings.mode
        is_done = wanted is None or settings.umask is not None or wanted & ~made == 0
        rest = replace(settings, size=settings.size or None, mode=None if is_done else wanted)
        for part in rest.in_order():
            self._set(node, part, fd)

    def _first_mode(self, directory: Node, settings: Settings, otherwise: int) -> int:
        mode = otherwise if settings.mode is None else settings.mode
        if settings.umask is not None and not self._has_default_acl(directory):
            mode &= ~settings.umask
        return mode


def _times_of(verifier: bytes) -> tuple[int, int]:
    words = int.from_bytes(verifier[:4], "big"), int.from_bytes(verifier[4:], "big")
    return (words[0] & _WORD) * 10**9, (words[1] & _WORD) * 10**9


def _has(node: Node, verifier: bytes) -> bool:
    status = node.stat()
    times = status.st_atime_ns, status.st_mtime_ns
    return node.kind == Kind.REG and status.st_size == 0 and times == _times_of(verifier)
