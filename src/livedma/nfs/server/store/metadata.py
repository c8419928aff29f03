# SPDX-License-Identifier: BSD-2-Clause
"""Reads and sets what is known about files besides their data: attributes, and permissions."""

from __future__ import annotations

import errno
import os
from enum import IntFlag

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.store import syscalls
from livedma.nfs.server.store.base import Base
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.node import Kind, Node
from livedma.nfs.server.store.settings import Settings

__all__ = ["SIZE_MOST", "Access", "Metadata"]

SIZE_MOST = (1 << 63) - 1


class Access(IntFlag):
    """Has the bits of ACCESS (RFC 8881 §18.1, RFC 8276 §8.5)."""

    READ = 0x01
    LOOKUP = 0x02
    MODIFY = 0x04
    EXTEND = 0x08
    DELETE = 0x10
    EXECUTE = 0x20
    XAREAD = 0x40
    XAWRITE = 0x80
    XALIST = 0x100


_CHANGING = Access.MODIFY | Access.EXTEND | Access.DELETE | Access.XAWRITE

_DIRECTORY = {
    Access.READ: os.R_OK,
    Access.LOOKUP: os.X_OK,
    Access.MODIFY: os.W_OK | os.X_OK,
    Access.EXTEND: os.W_OK | os.X_OK,
    Access.DELETE: os.W_OK | os.X_OK,
}
_FILE = {
    Access.READ: os.R_OK,
    Access.MODIFY: os.W_OK,
    Access.EXTEND: os.W_OK,
    Access.EXECUTE: os.X_OK,
}
_XATTRS = {Access.XAREAD: os.R_OK, Access.XAWRITE: os.W_OK, Access.XALIST: os.R_OK}
_OTHER = {Access.READ: os.R_OK, Access.MODIFY: os.W_OK, Access.EXTEND: os.W_OK}
_RIGHTS = {Kind.DIR: _DIRECTORY | _XATTRS, Kind.REG: _FILE | _XATTRS}


class Metadata(Base):
    """Sets attributes and checks permissions."""

    @translated
    def setattr(self, node: Node, settings: Settings, fd: int | None = None) -> None:
        """Sets all that is not None; a size needs `fd`, open for writing.

        It stops at the first failure: a caller that has to know how far it came sets
        `settings.in_order()` one by one.
        """
        for part in settings.in_order():
            self._set(node, part, fd)
        self._settle(node)

    def _set(self, node: Node, settings: Settings, fd: int | None) -> None:
        if settings.size is not None:
            if fd is None:
                node.want_file()
                raise NfsError(Status.INVAL)
            if settings.size > SIZE_MOST:
                raise NfsError(Status.FBIG)
            os.ftruncate(fd, settings.size)
        if settings.uid is not None or settings.gid is not None:
            syscalls.chown(node.fd, settings.uid, settings.gid)
        if settings.mode is not None and node.kind != Kind.LNK:  # A link's mode means nothing.
            syscalls.chmod(node.fd, settings.mode)
        if settings.accessed_ns is not None or settings.modified_ns is not None:
            syscalls.set_times(node.fd, settings.accessed_ns, settings.modified_ns)
        self.modified(node)

    @translated
    def access(self, node: Node, wanted: Access) -> tuple[Access, Access]:
        """Returns, of what was asked: what can be told, and what the caller may do.

        The kernel decides by the identity of this thread, with ACLs and all else that it knows.
        """
        rights = _RIGHTS.get(node.kind, _OTHER)
        known, allowed = Access(0), Access(0)
        answers: dict[int, bool] = {}
        for right, mode in rights.items():
            if not right & wanted:
                continue
            known |= right
            if mode not in answers:
                answers[mode] = syscalls.is_accessible(node.fd, mode)
            if answers[mode]:
                allowed |= right
        return known, allowed & ~_CHANGING if self.config.read_only else allowed

    def _has_default_acl(self, directory: Node) -> bool:
        try:
            os.getxattr(directory.path, "system.posix_acl_default")
        except OSError as failure:
            if failure.errno in (errno.ENODATA, errno.EOPNOTSUPP):
                return False
            raise
        return True
