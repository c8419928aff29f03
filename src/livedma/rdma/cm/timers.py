# SPDX-License-Identifier: BSD-2-Clause
"""Keeps deadlines of connections and requests: each has one, which can move or be dropped at any
time."""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar


class HasDeadline(Protocol):
    deadline: float | None


T = TypeVar("T", bound=HasDeadline)


class Timers(Generic[T]):
    """Orders items by `deadline`, which decides; the heap may hold entries that are out of date."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._order = 0
        self._live = 0

    def set(self, item: T, deadline: float | None) -> None:
        self._live += (deadline is not None) - (item.deadline is not None)
        item.deadline = deadline
        if deadline is None:
            return
        if len(self._heap) > 64 + 4 * self._live:
            self._heap = [entry for entry in self._heap if entry[2].deadline == entry[0]]
            heapq.heapify(self._heap)
        self._order += 1
        heapq.heappush(self._heap, (deadline, self._order, item))

    @property
    def next(self) -> float | None:
        while self._heap and self._heap[0][2].deadline != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expired(self, now: float) -> T | None:
        """Returns an item that is due, and clears its deadline; None if there is none."""
        first = self.next
        if first is None or first > now:
            return None
        item = heapq.heappop(self._heap)[2]
        self.set(item, None)
        return item
