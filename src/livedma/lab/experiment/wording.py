# SPDX-License-Identifier: BSD-2-Clause
"""Compares figures in words, no stronger than the data."""

from __future__ import annotations

from livedma.lab.experiment.quantities import times
from livedma.lab.experiment.runs import Spread

__all__ = ["ALIKE", "confidence", "is_clear", "relation"]

ALIKE = 0.05  #: a smaller difference counts as alike


def is_clear(ratio: Spread | None) -> bool:
    """Returns whether all runs agree on which is more, by more than a trifle."""
    if ratio is None or abs(ratio.median - 1) <= ALIKE:
        return False
    return ratio.low > 1 or ratio.high < 1


def relation(ratio: Spread | None, more: str = "more", less: str = "less") -> str:
    """Returns `1.8x more (1.6x to 2x)`, or that there is no clear difference."""
    if ratio is None:
        return "not measured"
    if not is_clear(ratio):
        low, median, high = (times(value) for value in (ratio.low, ratio.median, ratio.high))
        return f"not clearly different ({median}; {low} to {high})"
    word = more if ratio.median > 1 else less
    if ratio.median > 1:
        low, median, high = (times(value) for value in (ratio.low, ratio.median, ratio.high))
    else:
        low, median, high = (times(1 / value) for value in (ratio.high, ratio.median, ratio.low))
    return f"{median} {word}" + (f" ({low} to {high})" if low != high else "")


def confidence(runs: int) -> str:
    """Says what the range of so many independent runs tells about the true median, whatever their
    distribution: it misses only if all runs are on one side of it.
    """
    if runs < 3:
        return "So few runs say nothing about what others would give."
    share = 1 - 2.0 ** (1 - runs)
    return (
        f"Whatever the distribution, the true median is within that range with {share:.1%} "
        "confidence, if runs do not influence each other."
    )
