# SPDX-License-Identifier: BSD-2-Clause
"""Measuring side by side, and the table that it ends in."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True)
class Line:
    """One comparison: `ours` should be at least `bar` times `other` (at most, for costs)."""

    what: str
    ours: str
    other: str
    ratio: float
    bar: float
    is_cost: bool = False

    @property
    def holds(self) -> bool:
        return self.ratio <= self.bar if self.is_cost else self.ratio >= self.bar

    def __str__(self) -> str:
        sign = "<=" if self.is_cost else ">="
        bar = f"{sign} {self.bar:g}x"
        columns = f"{self.what:<44} {self.ours:>16} {self.other:>32} {self.ratio:8.2f}x  {bar:>8}"
        return f"{columns}  {'holds' if self.holds else 'MISSED'}"


def heading() -> str:
    return f"{'':<44} {'ours':>16} {'against':>32} {'ratio':>9}  {'bar':>8}"


def judge(lines: Iterable[Line]) -> int:
    """Prints each comparison as it is made. Returns an exit status: 1 if one misses its bar."""
    missed = 0
    print(heading(), flush=True)
    for line in lines:
        print(line, flush=True)
        missed += not line.holds
    return 1 if missed else 0


def rates(runs: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median rate of each run. They take turns, so that a noisy moment meets all of them."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seen[name].append(run())
    return {name: statistics.median(values) for name, values in seen.items()}


def per_second(rate: float) -> str:
    return f"{rate / 1e6:.2f} M/s" if rate >= 1e6 else f"{rate / 1e3:.1f} k/s"
