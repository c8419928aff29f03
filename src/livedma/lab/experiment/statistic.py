# SPDX-License-Identifier: BSD-2-Clause
"""Computes statistics of few and dependent observations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Share", "quantile", "reversals", "share_of_clusters"]

_DRAWS = 2000


@dataclass(frozen=True)
class Share:
    """Holds a share and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


def share_of_clusters(clusters: Sequence[tuple[int, int]], seed: int = 1) -> Share | None:
    """Returns the share over all clusters; each is how many were right, of how many.

    Observations within a cluster resemble each other, so the interval comes from drawing whole
    clusters again and again (bootstrap), not from the number of observations.
    """
    if not sum(total for _, total in clusters):
        return None
    chance = random.Random(seed)
    drawn = sorted(_share(chance.choices(clusters, k=len(clusters))) for _ in range(_DRAWS))
    return Share(_share(clusters), quantile(drawn, 0.025), quantile(drawn, 0.975))


def _share(clusters: Sequence[tuple[int, int]]) -> float:
    total = sum(count for _, count in clusters)
    return sum(right for right, _ in clusters) / total if total else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the least value that the given part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def reversals(values: Sequence[float], least: float) -> int:
    """Counts how often a series turned from up to down or back, by `least` or more each way."""
    turns, direction = 0, 0
    if not values:
        return 0
    low = high = values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
        if direction <= 0 and value - low >= least:
            turns += direction < 0
            direction, high = 1, value
        elif direction >= 0 and high - value >= least:
            turns += direction > 0
            direction, low = -1, value
    return turns
