# SPDX-License-Identifier: BSD-2-Clause
"""Looks names up, and removes, moves and links them."""

from __future__ import annotations

import errno
import os

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.store.base import Base
from livedma.nfs.server.store.changes import ChangeInfo
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.names import checked_name
from livedma.nfs.server.store.node import Kind, Node

__all__ = ["Tree"]


class Tree(Base):
    """Changes directories and their entries. Each name is checked: it is one entry of its
    directory."""

    @translated
    def lookup(self, directory: Node, name: bytes) -> Node:
        """Returns the node of an entry; a symbolic link is not followed."""
        directory.want_directory()
        return self._lookup(directory, checked_name(name))

    @translated
    def parent(self, directory: Node) -> Node:
        """Returns the directory above; NOENT above the root."""
        directory.want_directory()
        if directory.key == self.root.key:
            raise NfsError(Status.NOENT)
        return self._node(self.handles.parent(directory.fd))

    @translated
    def remove(self, directory: Node, name: bytes) -> ChangeInfo:
        """Removes a file's name, or an empty directory."""
        name = checked_name(name)
        with self._changing(directory) as change:
            victim = self._lookup(directory, name)
            if victim.kind == Kind.DIR:
                os.rmdir(name, dir_fd=directory.fd)
            else:
                os.unlink(name, dir_fd=directory.fd)
                self.modified(victim)
            self.handles.gone(directory.fd, name)
        return change.info

    @translated
    def rename(
        self, source: Node, old: bytes, target: Node, new: bytes
    ) -> tuple[ChangeInfo, ChangeInfo]:
        """Moves an entry over whatever has the new name, if the two are compatible."""
        old, new = checked_name(old), checked_name(new)
        source.want_directory()
        target.want_directory()
        if self._is_one(self._lookup(source, old), target, new):  # RFC 8881 §18.26.3: no action
            return self._unchanged(source), self._unchanged(target)
        with self._changing(source) as from_source, self._changing(target) as to_target:
            try:
                os.rename(old, new, src_dir_fd=source.fd, dst_dir_fd=target.fd)
            except OSError as failure:
                # RFC 8881 §18.26.3: the two are of different kinds, or the directory is not empty.
                if failure.errno in (errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR):
                    raise NfsError(Status.EXIST) from failure
                raise
            moved = self._lookup(target, new)
            self.modified(moved)
            self._forget_if_gone(source, old)
        return from_source.info, to_target.info

    def _is_one(self, node: Node, directory: Node, name: bytes) -> bool:
        try:
            return self._lookup(directory, name).key == node.key
        except FileNotFoundError:
            return False

    def _unchanged(self, directory: Node) -> ChangeInfo:
        change = self.change(directory)
        return ChangeInfo(change, change)

    def _forget_if_gone(self, directory: Node, name: bytes) -> None:
        # If both names have become one file meanwhile, both stay.
        try:
            self._lookup(directory, name)
        except (OSError, NfsError):
            self.handles.gone(directory.fd, name)

    @translated
    def link(self, node: Node, directory: Node, name: bytes) -> ChangeInfo:
        """Adds a name for a file."""
        name = checked_name(name)
        if node.kind == Kind.DIR:
            raise NfsError(Status.ISDIR)
        with self._changing(directory) as change:
            os.link(node.path, name, dst_dir_fd=directory.fd, follow_symlinks=True)
            self.handles.found(directory.fd, name, node.fd)
            self.modified(node)
        return change.info

    @translated
    def readlink(self, node: Node) -> bytes:
        """Returns the target of a symbolic link."""
        if node.kind != Kind.LNK:
            raise NfsError(Status.WRONG_TYPE)
        return os.readlink(b"", dir_fd=node.fd)
