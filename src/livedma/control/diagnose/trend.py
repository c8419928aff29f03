# SPDX-License-Identifier: BSD-2-Clause
"""Tells whether a figure rises steadily, over the shortest of several spans that shows it: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BINS", "Trend", "binned", "trend"]

BINS = 8
_BINS_LEAST = 6
#: The part of a figure's changes that a straight line has to explain. A single step explains 0.77
#: at most, so a load that has jumped and stays does not pass for one that rises.
_STEADY = 0.85


@dataclass(frozen=True, slots=True)
class Trend:
    """Describes a figure over a span. `per_s` is its slope; 0: it does not rise steadily. `spread`
    is how far its samples lie from the line, as a standard deviation.
    """

    mean: float
    per_s: float
    spread: float


def binned(values: Sequence[tuple[float, float]], width_s: float) -> list[tuple[float, float]]:
    """Averages samples (time, value) in BINS bins, of which the last one ends with the last sample;
    empty bins are left out.
    """
    if not values:
        return []
    last_s = values[-1][0]
    sums: dict[int, tuple[float, float, int]] = {}
    for at_s, value in reversed(values):
        index = int((last_s - at_s) / width_s + 1e-6)
        if index >= BINS:
            break
        times, total, count = sums.get(index, (0.0, 0.0, 0))
        sums[index] = times + at_s, total + value, count + 1
    return [(times / n, total / n) for _, (times, total, n) in sorted(sums.items(), reverse=True)]


def trend(values: Sequence[tuple[float, float]]) -> Trend | None:
    """Fits a line to bins (time, mean). None: there are too few of them."""
    count = len(values)
    if count < _BINS_LEAST:
        return None
    middle_s = sum(at_s for at_s, _ in values) / count
    mean = sum(value for _, value in values) / count
    times = sum((at_s - middle_s) ** 2 for at_s, _ in values)
    both = sum((at_s - middle_s) * (value - mean) for at_s, value in values)
    changes = sum((value - mean) ** 2 for _, value in values)
    if not times or not changes:
        return Trend(mean, 0.0, 0.0)
    explained = both * both / times / changes
    spread = (max(changes * (1 - explained), 0.0) / count) ** 0.5
    is_rising = both > 0 and explained >= _STEADY
    return Trend(mean, both / times if is_rising else 0.0, spread)
