# SPDX-License-Identifier: BSD-2-Clause
"""Shares descriptors of open files between threads, and bounds their number."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.state.shares import READ, WRITE

__all__ = ["Descriptors", "Held", "OpenFds", "allow_all_descriptors"]

_SPARE_FDS = 256  # for connections, directories, and what operations open for themselves


def allow_all_descriptors() -> None:
    """Raises the limit of this process as far as possible, for a process that is only a server."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Descriptors:
    """Counts the descriptors that states hold.

    most: None leaves it to the limit of the process (RLIMIT_NOFILE), of which each one here may
    take two, since the accelerator has its own. on_full: is called when there is no room for one
    more.
    """

    def __init__(self, most: int | None = None) -> None:
        if most is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = max(16, (soft - min(_SPARE_FDS, soft // 2)) // 2)
        self.most = most
        self.on_full: Callable[[], object] = lambda: None
        self._mutex = threading.Lock()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Returns whether there is no room for one more."""
        return self._count >= self.most

    def hold(self, fd: int, access: int) -> Held:
        """Takes over a descriptor. One too many is closed, with DELAY: a client may close a file.

        RESOURCE would be the word, but 4.1 has given it up (15.1.16).
        """
        with self._mutex:
            is_room = self._count < self.most
            self._count += is_room
        if not is_room:
            os.close(fd)
            self.on_full()
            raise NfsError(Status.DELAY)
        return Held(fd, access, self)

    def given_back(self) -> None:
        """Counts one less."""
        with self._mutex:
            self._count -= 1


class Held:
    """Shares a descriptor with `access`, which is closed when its last user drops it."""

    def __init__(self, fd: int, access: int, descriptors: Descriptors) -> None:
        self.fd = fd
        self.access = access
        self._descriptors = descriptors
        self._mutex = threading.Lock()
        self._users = 1

    def take(self) -> Held:
        """Adds a user; the caller makes sure that there is still one."""
        with self._mutex:
            self._users += 1
        return self

    def drop(self) -> None:
        """Removes a user. After the last one it closes the file, which may take time."""
        with self._mutex:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            try:
                os.close(self.fd)
            finally:
                self._descriptors.given_back()


class OpenFds:
    """Holds the descriptors of one open: one for all access, or one to read and one to write."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def add(self, held: Held) -> list[Held]:
        """Adds a descriptor; returns those that it makes needless, for the caller to drop."""
        needless = [old for old in self._held if old.access | held.access == held.access]
        self._held = [old for old in self._held if old not in needless] + [held]
        return needless

    def keep(self, access: int) -> list[Held]:
        """Reduces the access; returns the needless descriptors as above."""
        needless = [held for held in self._held if not held.access & access]
        self._held = [held for held in self._held if held not in needless]
        return needless

    def clear(self) -> list[Held]:
        """Removes and returns all."""
        ret, self._held = self._held, []
        return ret

    def find(self, access: int) -> Held | None:
        """Returns one that allows this access."""
        return next((held for held in self._held if held.access & access == access), None)

    @property
    def most_able(self) -> Held:
        """Returns the one for users that can have just one: if there are two, the one to read."""
        return self.find(READ | WRITE) or self.find(READ) or self._held[0]
