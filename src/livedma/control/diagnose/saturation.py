# SPDX-License-Identifier: BSD-2-Clause
"""Tells whether a stage with more to do at a time does more, or only takes longer for each."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Saturation"]

_STEPS = 2  # per power of two of the number at a time
_MIXED = 0.2  # weight of the newest observation
_SEEN_OFTEN = 3
_SEEN_WELL = 4
_FEWER = 1.6  # times as many now as then
_AS_MUCH = 0.85  # of what it does now


@dataclass(slots=True)
class _Seen:
    at_a_time: float
    per_s: float
    times: int = 1


class Saturation:
    """Remembers how much a stage did with how many at a time, and compares loads of one `kind`.

    A stage that takes a constant time does twice as much with twice as many at a time. A stage that
    has done the same with fewer is saturated: more only wait in it. Observations are averaged for
    each number at a time, since a host is noisy.
    """

    _KINDS_MOST = 32

    def __init__(self) -> None:
        self._seen: dict[object, dict[int, _Seen]] = {}

    def observe(self, kind: object, at_a_time: float, per_s: float) -> None:
        if at_a_time <= 0 or per_s <= 0:
            return
        if kind not in self._seen and len(self._seen) >= self._KINDS_MOST:
            del self._seen[next(iter(self._seen))]
        table = self._seen.setdefault(kind, {})
        step = _step(at_a_time)
        seen = table.get(step)
        if seen is None:
            table[step] = _Seen(at_a_time, per_s)
            return
        seen.at_a_time += _MIXED * (at_a_time - seen.at_a_time)
        seen.per_s += _MIXED * (per_s - seen.per_s)
        seen.times += 1

    def did_as_much_with(self, kind: object, at_a_time: float) -> float | None:
        """Returns the least number at a time that got as much done as `at_a_time` does. None: all
        are needed, or too little was seen to tell.
        """
        table = self._seen.get(kind, {})
        now = table.get(_step(at_a_time))
        if now is None:
            return None
        enough = [one for one in _fewer(table, now) if one.per_s >= _AS_MUCH * now.per_s]
        return min(one.at_a_time for one in enough) if _is_often(enough) else None

    def has_grown(self, kind: object, at_a_time: float) -> bool:
        """Returns whether enough observations show that fewer at a time did less."""
        table = self._seen.get(kind, {})
        now = table.get(_step(at_a_time))
        fewer = [] if now is None else _fewer(table, now)
        return any(one.times >= _SEEN_WELL for one in fewer) and not any(
            now is not None and one.per_s >= _AS_MUCH * now.per_s for one in fewer
        )


def _step(at_a_time: float) -> int:
    return round(_STEPS * math.log2(max(at_a_time, 1e-9)))


def _fewer(table: dict[int, _Seen], now: _Seen) -> list[_Seen]:
    return [one for one in table.values() if one.at_a_time * _FEWER <= now.at_a_time]


def _is_often(seen: list[_Seen]) -> bool:
    return sum(one.times for one in seen) >= _SEEN_OFTEN
