"""Descriptors of open files that are used by several threads, and how many there may be."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.shares import READ, WRITE

__all__ = ["Descriptors", "Held", "OpenFds", "allow_all_descriptors"]

_SPARE_FDS = 256  # for connections, directories, what operations open for themselves


def allow_all_descriptors() -> None:
    """Raises this process's limit as far as it may: for a process that is a server and no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Descriptors:
    """Counts those that states hold.

    most: None leaves it to the limit of the process (RLIMIT_NOFILE), of which each one here may
    take two: the accelerator has its own. on_full: is called when there is no room for one more.
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
        """There is no room for one more."""
        return self._count >= self.most

    def hold(self, fd: int, access: int) -> Held:
        """Takes over a descriptor; one too many is closed, and DELAY: somebody may close a file.

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
        """One is closed."""
        with self._mutex:
            self._count -= 1


class Held:
    """A descriptor with `access`, which is closed when nobody uses it any more."""

    def __init__(self, fd: int, access: int, descriptors: Descriptors) -> None:
        self.fd = fd
        self.access = access
        self._descriptors = descriptors
        self._mutex = threading.Lock()
        self._users = 1

    def take(self) -> Held:
        """One user more; the caller has to be sure that there is one."""
        with self._mutex:
            self._users += 1
        return self

    def drop(self) -> None:
        """One user less. The last one closes the file, which may take its time."""
        with self._mutex:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            try:
                os.close(self.fd)
            finally:
                self._descriptors.given_back()


class OpenFds:
    """The descriptors of one open: one that can do all, or one to read and one to write."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def add(self, held: Held) -> list[Held]:
        """Takes it; those that it makes needless are the caller's to drop."""
        needless = [old for old in self._held if old.access | held.access == held.access]
        self._held = [old for old in self._held if old not in needless] + [held]
        return needless

    def keep(self, access: int) -> list[Held]:
        """Less access: as above."""
        needless = [held for held in self._held if not held.access & access]
        self._held = [held for held in self._held if held not in needless]
        return needless

    def clear(self) -> list[Held]:
        """Nothing is left."""
        ret, self._held = self._held, []
        return ret

    def find(self, access: int) -> Held | None:
        """One that can do this."""
        return next((held for held in self._held if held.access & access == access), None)

    @property
    def most_able(self) -> Held:
        """The one for those who can have just one: to read, if there are two."""
        return self.find(READ | WRITE) or self.find(READ) or self._held[0]
