# SPDX-License-Identifier: BSD-2-Clause
"""Reads and writes extended attributes (RFC 8276) of the user namespace, without the prefix."""

from __future__ import annotations

import errno
import os

from livedma.nfs.numbers import XATTR_MOST, NfsError, Status
from livedma.nfs.server.store.base import Base
from livedma.nfs.server.store.changes import ChangeInfo
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.node import Node

__all__ = ["Xattrs"]

_NAME_MOST = 255
_PREFIX = b"user."

EITHER = 0


class Xattrs(Base):
    """Reads and writes named values that users attach to files and directories."""

    @translated
    def get_xattr(self, node: Node, name: bytes) -> bytes:
        """Returns a value; NOXATTR if there is none of that name."""
        try:
            return os.getxattr(node.path, _full(name))
        except OSError as failure:
            raise _translated(failure) from failure

    @translated
    def set_xattr(self, node: Node, name: bytes, value: bytes, flags: int = EITHER) -> ChangeInfo:
        """Sets one. `flags`: os.XATTR_CREATE (or EXIST), os.XATTR_REPLACE (or NOXATTR)."""
        full = _full(name)
        if len(value) > XATTR_MOST:
            raise NfsError(Status.XATTR2BIG)
        before = self.change(node)
        try:
            os.setxattr(node.path, full, value, flags)
        except OSError as failure:
            raise _translated(failure) from failure
        return self._changed(node, before)

    @translated
    def list_xattrs(self, node: Node) -> list[bytes]:
        """Returns all names, in an order that stays the same."""
        names = (os.fsencode(name) for name in os.listxattr(node.path))
        return sorted(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))

    @translated
    def remove_xattr(self, node: Node, name: bytes) -> ChangeInfo:
        """Removes one; NOXATTR if it is not there."""
        full = _full(name)
        before = self.change(node)
        try:
            os.removexattr(node.path, full)
        except OSError as failure:
            raise _translated(failure) from failure
        return self._changed(node, before)

    def _changed(self, node: Node, before: int) -> ChangeInfo:
        self._settle(node)
        self.modified(node)
        return ChangeInfo(before, self.change(node))


def _full(name: bytes) -> bytes:
    if not name or b"\0" in name:
        raise NfsError(Status.INVAL)
    if len(name) > _NAME_MOST - len(_PREFIX):
        raise NfsError(Status.NAMETOOLONG)
    try:
        name.decode()
    except UnicodeDecodeError:
        raise NfsError(Status.INVAL) from None
    return _PREFIX + name


def _translated(failure: OSError) -> NfsError:
    # Filesystems that keep attributes in one block report that it is full.
    if failure.errno in (errno.E2BIG, errno.ERANGE, errno.ENOSPC):
        return NfsError(Status.XATTR2BIG)
    if failure.errno == errno.ENODATA:
        return NfsError(Status.NOXATTR)
    raise failure
