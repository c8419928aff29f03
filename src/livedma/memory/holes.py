# SPDX-License-Identifier: BSD-2-Clause
"""Manages the free parts of a range: taken first fit, given back, merged with their neighbours."""

from __future__ import annotations

from bisect import bisect_left

from livedma.memory.rounding import up


class Holes:
    """Manages the free parts of a range. It is not thread-safe: its owner has a lock."""

    def __init__(self, size: int) -> None:
        self._holes: list[tuple[int, int]] = [(0, size)] if size else []  # (start, end), in order

    @property
    def free(self) -> int:
        return sum(end - start for start, end in self._holes)

    @property
    def largest(self) -> int:
        return max((end - start for start, end in self._holes), default=0)

    def pieces(self, size: int) -> int:
        """Returns how many pieces of that size can be taken."""
        return sum((end - start) // size for start, end in self._holes)

    def take(self, size: int, align: int = 1) -> int | None:
        """Takes `size` bytes on a multiple of `align` from the first hole that has them. Returns
        their start; None: no hole has them.
        """
        for start, end in self._holes:
            at = up(start, align)
            if size <= end - at:
                self.claim(at, size)
                return at
        return None

    def claim(self, start: int, size: int) -> bool:
        """Takes this very range. Returns False if not all of it is free."""
        index = bisect_left(self._holes, (start + 1,)) - 1
        if size <= 0 or index < 0:
            return False
        first, end = self._holes[index]
        if start + size > end:
            return False
        rest = ((first, start), (start + size, end))
        self._holes[index : index + 1] = [hole for hole in rest if hole[0] < hole[1]]
        return True

    def give(self, start: int, size: int) -> None:
        """Gives back what was taken. Raises ValueError if any of it is free."""
        end = start + size
        index = bisect_left(self._holes, (start,))
        before = self._holes[index - 1] if index else None
        after = self._holes[index] if index < len(self._holes) else None
        if size <= 0 or (before and before[1] > start) or (after and after[0] < end):
            raise ValueError("that was not taken")
        first, last = index, index
        if before and before[1] == start:
            start, first = before[0], index - 1
        if after and after[0] == end:
            end, last = after[1], index + 1
        self._holes[first:last] = [(start, end)]
