# SPDX-License-Identifier: BSD-2-Clause
"""Counts how many ranges cover each address."""

from __future__ import annotations

from bisect import bisect_left

Range = tuple[int, int]  # from, and up to but not including


class Coverage:
    """Counts ranges that come and go, and may overlap. `size` is that of their union."""

    def __init__(self) -> None:
        # counts[i] ranges cover starts[i] up to starts[i + 1]; neighbouring counts differ.
        self._starts = [0]
        self._counts = [0]
        self.size = 0

    def add(self, start: int, end: int) -> list[Range]:
        """Adds a range, and returns the parts of it that nothing covered before."""
        return self._change(start, end, 1)

    def remove(self, start: int, end: int) -> list[Range]:
        """Removes a range that was added, and returns the parts that nothing covers any more."""
        return self._change(start, end, -1)

    def _change(self, start: int, end: int, step: int) -> list[Range]:
        if start >= end:
            return []
        starts, counts = self._starts, self._counts
        first, last = self._cut(start), self._cut(end)
        turned = []
        for at in range(first, last):
            if counts[at] == (0 if step > 0 else 1):
                turned.append((starts[at], starts[at + 1]))
                self.size += step * (starts[at + 1] - starts[at])
            counts[at] += step
        self._join(last)
        self._join(first)
        return turned

    def _cut(self, address: int) -> int:
        at = bisect_left(self._starts, address)
        if at == len(self._starts) or self._starts[at] != address:
            self._starts.insert(at, address)
            self._counts.insert(at, self._counts[at - 1])
        return at

    def _join(self, at: int) -> None:
        if at and self._counts[at] == self._counts[at - 1]:
            del self._starts[at], self._counts[at]
