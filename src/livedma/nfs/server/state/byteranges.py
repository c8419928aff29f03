# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the locked ranges of one file by POSIX's rules: an owner's new lock replaces what it had
there.

Nothing here depends on NFS. Ranges are inclusive: `first` to `last`, 0 to 2^64 - 1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["LAST", "ByteRanges", "Holder", "Locked"]

LAST = (1 << 64) - 1


class Holder(Protocol):
    """Holds a range. Locks of holders with one owner never conflict, but are kept apart."""

    @property
    def lock_owner(self) -> Hashable: ...


H = TypeVar("H", bound=Holder)


@dataclass(frozen=True, slots=True)
class Locked(Generic[H]):
    """Describes a locked range."""

    first: int
    last: int
    is_exclusive: bool
    holder: H


class ByteRanges(Generic[H]):
    """Holds the locks of a file: for each owner sorted and without overlap."""

    def __init__(self) -> None:
        self._by_owner: dict[Hashable, list[Locked[H]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_owner.values()))

    def __iter__(self) -> Iterator[Locked[H]]:
        for locks in self._by_owner.values():
            yield from locks

    def conflicts(
        self, owner: Hashable, first: int, last: int, is_exclusive: bool
    ) -> Iterator[Locked[H]]:
        """Yields the locks of other owners that are in the way, each owner's in order."""
        for other, locks in self._by_owner.items():
            if other == owner:
                continue
            for lock in locks[_beginning(locks, first) :]:
                if lock.first > last:
                    break
                if is_exclusive or lock.is_exclusive:
                    yield lock

    def lock(self, holder: H, first: int, last: int, is_exclusive: bool) -> None:
        """Gives the holder the range; the caller has checked that no lock is in the way."""
        locks = self._clear(holder.lock_owner, first, last)
        at = _beginning(locks, first)
        # Neighbours of the same kind are merged.
        if at and _continues(locks[at - 1], first - 1, holder, is_exclusive):
            at -= 1
            first = locks.pop(at).first
        if at < len(locks) and locks[at].first == last + 1:
            after = locks[at]
            if after.holder is holder and after.is_exclusive == is_exclusive:
                last = locks.pop(at).last
        locks.insert(at, Locked(first, last, is_exclusive, holder))
        self._by_owner[holder.lock_owner] = locks

    def unlock(self, owner: Hashable, first: int, last: int) -> None:
        """Takes the range from the owner; parts of its locks outside the range stay."""
        self._keep(owner, self._clear(owner, first, last))

    def drop(self, holder: H) -> None:
        """Removes all locks of the holder."""
        owner = holder.lock_owner
        locks = self._by_owner.get(owner, [])
        self._keep(owner, [lock for lock in locks if lock.holder is not holder])

    def count(self, owner: Hashable) -> int:
        """Returns how many ranges the owner has."""
        return len(self._by_owner.get(owner, []))

    def holds(self, holder: H) -> bool:
        """Returns whether the holder has a lock."""
        return any(lock.holder is holder for lock in self._by_owner.get(holder.lock_owner, []))

    def of(self, holder: H) -> list[Locked[H]]:
        """Returns the holder's locks, in order."""
        return [lock for lock in self._by_owner.get(holder.lock_owner, []) if lock.holder is holder]

    def unheld(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of a range that no owner has locked, in order."""
        held = sorted(
            (lock.first, lock.last)
            for locks in self._by_owner.values()
            for lock in locks[_beginning(locks, first) :]
            if lock.first <= last
        )
        for begin, end in held:
            if begin > first:
                yield first, begin - 1
            first = max(first, end + 1)
        if first <= last:
            yield first, last

    def _keep(self, owner: Hashable, locks: list[Locked[H]]) -> None:
        if locks:
            self._by_owner[owner] = locks
        else:
            self._by_owner.pop(owner, None)

    def _clear(self, owner: Hashable, first: int, last: int) -> list[Locked[H]]:
        locks = self._by_owner.get(owner, [])
        begin = end = _beginning(locks, first)
        left: list[Locked[H]] = []
        while end < len(locks) and locks[end].first <= last:
            lock = locks[end]
            if lock.first < first:
                left.append(Locked(lock.first, first - 1, lock.is_exclusive, lock.holder))
            if lock.last > last:
                left.append(Locked(last + 1, lock.last, lock.is_exclusive, lock.holder))
            end += 1
        return [*locks[:begin], *left, *locks[end:]]


def _beginning(locks: list[Locked[H]], first: int) -> int:
    """Returns the index of the first lock that reaches `first` or lies behind it."""
    return bisect_left(locks, first, key=lambda lock: lock.last)


def _continues(before: Locked[H], last: int, holder: H, is_exclusive: bool) -> bool:
    return before.last == last and before.holder is holder and before.is_exclusive == is_exclusive
