# SPDX-License-Identifier: BSD-2-Clause
"""Makes filehandles for servers that cannot open files by the filesystem's own handles.

A handle is an inode number and the time of the file's birth. A table remembers the names, from the
root down, under which files were seen. To find one again, the server walks there and checks that it
is still the same file. Its limits:

- It is in memory: after a restart handles are STALE until a client looks the file up again, which
  `fh_expire_type` says (volatile).
- It follows renames by clients, not those by local users: after one, handles are STALE as long.
- Removed files are STALE even while they are open.
- It keeps the most recently used names. A file whose names were dropped is STALE.
- If the filesystem does not remember births, a new file may be taken for an old one that had its
  number.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections import OrderedDict

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.credentials import Actor
from livedma.nfs.server.store.handles import Seal

__all__ = ["TableHandles"]

_TABLE = 2
_IDENTITY = struct.Struct(">QQq")
_PLACES_MOST = 1_000_000
_DEPTH_MOST = 4096

Identity = tuple[int, int, int]  # device, inode, birth
Place = tuple[Identity, bytes]  # directory, name


class TableHandles:
    """Makes handles that name inodes, and keeps a table of the places of these."""

    is_persistent = False

    def __init__(
        self, secret: bytes, root: int, actor: Actor, places_most: int = _PLACES_MOST
    ) -> None:
        self._root, self._actor, self._places_most = root, actor, places_most
        self._root_identity = _identity(root)
        self._seal = Seal(secret, _IDENTITY.pack(*self._root_identity), _TABLE)
        self._lock = threading.Lock()
        self._places: OrderedDict[Place, Identity] = OrderedDict()
        self._seen: dict[Identity, OrderedDict[Place, None]] = {}
        self._down = syscalls.Link(
            os.O_PATH | os.O_NOFOLLOW,
            syscalls.RESOLVE_BENEATH
            | syscalls.RESOLVE_NO_XDEV
            | syscalls.RESOLVE_NO_MAGICLINKS
            | syscalls.RESOLVE_NO_SYMLINKS,
        )

    def encode(self, fd: int) -> bytes:
        return self._seal.close(_IDENTITY.pack(*_identity(fd)))

    def decode(self, handle: bytes) -> int:
        identity = _IDENTITY.unpack(self._seal.open(handle))
        return self._find((identity[0], identity[1], identity[2]))

    def parent(self, fd: int) -> int:
        if not syscalls.is_accessible(fd, os.X_OK):  # as for `..` itself
            raise NfsError(Status.ACCESS)
        identity = _identity(fd)
        with self._lock:
            places = list(self._seen.get(identity, ()))
        if not places:
            raise NfsError(Status.STALE)
        return self._find(places[-1][0])

    def found(self, directory: int, name: bytes, fd: int) -> None:
        place, identity = (_identity(directory), name), _identity(fd)
        with self._lock:
            self._forget(place)
            self._places[place] = identity
            self._seen.setdefault(identity, OrderedDict())[place] = None
            if len(self._places) > self._places_most:
                self._forget(next(iter(self._places)))

    def gone(self, directory: int, name: bytes) -> None:
        place = (_identity(directory), name)
        with self._lock:
            self._forget(place)

    def close(self) -> None:
        """Does nothing: the root belongs to the caller."""

    def _forget(self, place: Place) -> None:
        identity = self._places.pop(place, None)
        if identity is None:
            return
        places = self._seen[identity]
        del places[place]
        if not places:
            del self._seen[identity]

    def _find(self, wanted: Identity) -> int:
        if wanted == self._root_identity:
            return self._down.open(self._root, b".")
        with self._lock:
            names = [self._names_down_to(place) for place in self._seen.get(wanted, ())]
        for path in names:
            # The walk has the server's rights: a handle is good whatever its directories allow.
            with self._actor.as_server():
                fd = self._walk(path)
            if fd is None:
                continue
            if _identity(fd) == wanted:
                return fd
            os.close(fd)
        raise NfsError(Status.STALE)

    def _names_down_to(self, place: Place) -> list[bytes]:
        """Returns the names from the root; none if the table does not know the whole way."""
        names: list[bytes] = []
        while len(names) < _DEPTH_MOST:
            directory, name = place
            names.append(name)
            if place in self._places:
                self._places.move_to_end(place)
            if directory == self._root_identity:
                return names[::-1]
            above = self._seen.get(directory)
            if not above:
                break
            place = next(reversed(above))
        return []

    def _walk(self, path: list[bytes]) -> int | None:
        if not path:
            return None
        at = os.dup(self._root)
        try:
            for start in range(0, len(path), 15):  # 15 names of 255 bytes are below PATH_MAX
                below = self._down.open(at, b"/".join(path[start : start + 15]))
                os.close(at)
                at = below
        except OSError as failure:
            os.close(at)
            if failure.errno in (errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO):
                raise
            return None
        return at


def _identity(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, syscalls.birth_ns(fd) or 0
