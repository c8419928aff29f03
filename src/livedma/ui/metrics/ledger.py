# SPDX-License-Identifier: BSD-2-Clause
"""Counts things that come and go. A bounded number of them has series of its own, and no value that
was ever shown grows smaller, whatever comes, goes, or gets a series later."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["REST_S", "Ledger", "Seen", "Tally"]

K = TypeVar("K")
Tally = tuple[int, ...]  # counters, each of which only grows

REST_S = 600.0


@dataclass(frozen=True, slots=True)
class Seen(Generic[K]):
    """Holds what is shown of many things. own: the things with series of their own, and their
    counts since they have one. other: the counts of all others, including those that have ended.
    total: of all, ever."""

    own: Mapping[K, Tally]
    other: Tally
    total: Tally


class Ledger(Generic[K]):
    """Chooses the things that have series of their own. most: the most things with series of their
    own at a time. A place that was given away is free again `rest_s` later at the soonest: things
    that come and go quickly make `most` series in that time, and not one more. Keys are never used
    again. One thread at a time."""

    def __init__(
        self,
        width: int,
        most: int,
        *,
        rest_s: float = REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._rest_s, self._clock = most, rest_s, clock
        self._ended = self._ended_other = (0,) * width
        self._own: dict[K, tuple[Tally, float]] = {}  # the counts before, and since when
        self._others: set[K] = set()
        self._resting: list[float] = []  # a heap: when places of things that ended are free again

    def end(self, key: K, last: Tally) -> None:
        """Takes the last counters of a thing that has ended."""
        self._ended = _sum((self._ended, last))
        self._others.discard(key)
        if key not in self._own:
            self._ended_other = _sum((self._ended_other, last))
            return
        _, given_s = self._own.pop(key)
        heapq.heappush(self._resting, given_s + self._rest_s)

    def see(self, live: Mapping[K, Tally]) -> Seen[K]:
        """Counts what has happened since the last call. live: all things that have not ended."""
        self._give_places(live)
        others = live.keys() - self._own.keys()
        self._others = others
        return Seen(
            own={
                key: _less(live[key], before)
                for key, (before, _) in self._own.items()
                if key in live
            },
            other=_sum((self._ended_other, *(live[key] for key in others))),
            total=_sum((self._ended, *live.values())),
        )

    def _give_places(self, live: Mapping[K, Tally]) -> None:
        """Gives free places to the things that have counted most so far."""
        now_s = self._clock()
        while self._resting and self._resting[0] <= now_s:
            heapq.heappop(self._resting)
        free = self._most - len(self._own) - len(self._resting)
        if free <= 0:
            return
        without = live.keys() - self._own.keys()
        for key in heapq.nlargest(free, without, key=lambda key: live[key]):
            before: Tally = (0,) * len(self._ended)
            if key in self._others:  # this much was shown under the others, and stays there
                before = live[key]
                self._ended_other = _sum((self._ended_other, before))
            self._own[key] = before, now_s


def _sum(tallies: Iterable[Tally]) -> Tally:
    return tuple(map(sum, zip(*tallies, strict=True)))


def _less(tally: Tally, before: Tally) -> Tally:
    return tuple(map(int.__sub__, tally, before))
