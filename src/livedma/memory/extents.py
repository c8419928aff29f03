# SPDX-License-Identifier: BSD-2-Clause
"""Holds memory in its place for this process, each page once, and knows how it is held."""

from __future__ import annotations

import errno
from bisect import bisect_right
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from livedma._native import pinning as native

#: pinned: stays where it is. locked: stays in memory, may be moved. unlocked: neither.
How = Literal["pinned", "locked", "unlocked"]
_WORST: tuple[How, ...] = ("unlocked", "locked", "pinned")

_NO_RING = "io_uring, by which memory is pinned, "
_WHY_NOT_PINNED = {
    errno.EPERM: _NO_RING + "is not permitted (kernel.io_uring_disabled, or a seccomp filter)",
    errno.ENOSYS: _NO_RING + "is not there (the kernel, or a seccomp filter)",
    errno.EINVAL: _NO_RING + "is too old: it takes Linux 5.19",
    errno.EMFILE: _NO_RING + "needs a file descriptor, and the process has as many as it may",
    errno.ENFILE: _NO_RING + "needs a file descriptor, and the system has none left",
    errno.ENOMEM: "the user's processes together have pinned what RLIMIT_MEMLOCK allows",
    errno.EFAULT: "the kernel pins no memory of a mapped file for long",
    errno.EOPNOTSUPP: "the kernel pins no memory of a mapped file for long",
}


@dataclass(frozen=True)
class _Extent:
    start: int
    end: int
    how: How
    why: str  # it is not pinned
    pinned: native.Pinned | None = None


class Extents:
    """Keeps the ranges that are held, without overlaps and in order. It is not thread-safe."""

    def __init__(self) -> None:
        self._extents: list[_Extent] = []

    def hold(self, start: int, end: int) -> None:
        """Pins a range of which nothing is held yet, or locks what cannot be pinned.

        Raises OSError if neither can be done; then nothing has changed.
        """
        made: list[_Extent] = []
        try:
            for at in range(start, end, native.PINNED_MAX):
                made.append(_held(at, min(at + native.PINNED_MAX, end)))
        except BaseException:
            for extent in made:
                _reduced(extent, extent.start, extent.end)
            raise
        at = bisect_right(self._extents, start, key=attrgetter("start"))
        self._extents[at:at] = made

    def drop(self, start: int, end: int) -> None:
        """Releases a range, all of which is held. What is beside it stays held."""
        at = self._first(start)
        while at < len(self._extents) and self._extents[at].start < end:
            extent = self._extents[at]
            rest = _reduced(extent, max(extent.start, start), min(extent.end, end))
            self._extents[at : at + 1] = rest
            at += len(rest)

    def state(self, start: int, end: int) -> tuple[How, str]:
        """Returns how the worst part of a held range is held, and why it is not pinned."""
        at = self._first(start)
        found: tuple[How, str] = ("pinned", "")
        while at < len(self._extents) and self._extents[at].start < end:
            extent = self._extents[at]
            if _WORST.index(extent.how) < _WORST.index(found[0]):
                found = extent.how, extent.why
            at += 1
        return found

    def _first(self, address: int) -> int:
        """Returns the index of the first extent that ends behind the address."""
        at = bisect_right(self._extents, address, key=attrgetter("start"))
        return at - 1 if at and self._extents[at - 1].end > address else at


def _pinned(start: int, end: int) -> _Extent:
    return _Extent(start, end, "pinned", "", native.Pinned(start, end - start))


def _held(start: int, end: int) -> _Extent:
    try:
        return _pinned(start, end)
    except OSError as error:
        problem = error
    try:
        native.lock(start, end - start)
    except OSError as error:
        native.unlock(start, end - start)  # a part may be locked
        raise error from problem
    why = _WHY_NOT_PINNED.get(problem.errno or 0, f"the kernel refuses ({problem.strerror})")
    return _Extent(start, end, "locked", why)


def _reduced(extent: _Extent, start: int, end: int) -> list[_Extent]:
    """Releases a part of an extent, and returns what is left of the extent."""
    rest = [part for part in ((extent.start, start), (end, extent.end)) if part[0] < part[1]]
    if extent.pinned is None:
        if extent.how == "locked":
            native.unlock(start, end - start)
        return [replace(extent, start=start, end=end) for start, end in rest]
    try:
        # The rest is pinned anew before the whole is released, so it is pinned all the time.
        remaining = [_pinned(*part) for part in rest]
    except OSError:
        # Until then the kernel counts the rest twice, which the limit may not allow.
        extent.pinned.release()
        remaining = [_held_or_not(*part) for part in rest]
    extent.pinned.release()
    return remaining


def _held_or_not(start: int, end: int) -> _Extent:
    try:
        return _held(start, end)
    except OSError as error:
        why = f"the kernel would not lock it again ({error.strerror}): was the limit lowered?"
        return _Extent(start, end, "unlocked", why)
