# SPDX-License-Identifier: BSD-2-Clause
"""Holds the data of an experiment, one row for each run of each point."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from livedma.lab.experiment.design import Point
from livedma.lab.experiment.quantities import Value

__all__ = ["Row", "Runs", "Spread"]


@dataclass(frozen=True)
class Row:
    """Holds the results of one run, or why it has none."""

    point: Point
    repetition: int
    order: int  #: its place in the order of all runs
    measures: Mapping[str, Value]
    problem: str = ""
    is_left_out: bool = False  #: the problem is this machine's; the run has not failed
    others_share: float | None = None  #: the part of all processors' time that other processes took


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    count: int


class Runs:
    """Holds rows in the order of the design, whatever the order in which they were measured."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def where(self, **levels: Value) -> Runs:
        """Returns the rows at points that have these levels."""
        return Runs([row for row in self.rows if _matches(row.point, levels)])

    def levels(self, factor: str) -> list[Value]:
        """Returns the levels at points that were measured: numbers by size, words as designed."""
        found = dict.fromkeys(row.point.get(factor) for row in self.rows if not row.problem)
        levels: list[Value] = [level for level in found if level is not None]
        if all(isinstance(level, int | float) for level in levels):
            return sorted(levels, key=lambda level: float(level))  # type: ignore[arg-type]
        return levels

    def points(self) -> list[Point]:
        """Returns each point once."""
        distinct = {tuple(row.point.items()): row.point for row in self.rows}
        return list(distinct.values())

    def values(self, measure: str, **levels: Value) -> list[float]:
        found = (row.measures.get(measure) for row in self.where(**levels))
        return [float(value) for value in found if isinstance(value, int | float)]

    def spread(self, measure: str, **levels: Value) -> Spread | None:
        values = self.values(measure, **levels)
        if not values:
            return None
        return Spread(statistics.median(values), min(values), max(values), len(values))

    def median(self, measure: str, **levels: Value) -> float | None:
        spread = self.spread(measure, **levels)
        return None if spread is None else spread.median

    def ratio(self, measure: str, one: Point, other: Point, **levels: Value) -> Spread | None:
        """Returns how often `other` fits into `one`, in the same repetition and at the same levels
        otherwise, so that what disturbs a whole turn does not count.
        """
        found = list(self._pairs(measure, one, other, levels))
        if not found:
            return None
        return Spread(statistics.median(found), min(found), max(found), len(found))

    def _pairs(
        self, measure: str, one: Point, other: Point, levels: Mapping[str, Value]
    ) -> Iterator[float]:
        def side(which: Point) -> dict[tuple[object, ...], float]:
            rest = [row for row in self.where(**{**levels, **which}) if not row.problem]
            return {
                (row.repetition, *_without(row.point, {*one, *other})): float(value)
                for row in rest
                if isinstance(value := row.measures.get(measure), int | float)
            }

        mine, its = side(one), side(other)
        for key, value in mine.items():
            if its.get(key):
                yield value / its[key]

    def best(
        self, measure: str, factor: str, choose: Callable[..., float] = min, **levels: Value
    ) -> Value:
        """Returns the level of the factor with the least median (or the greatest, with max)."""
        medians = {
            level: median
            for level in self.levels(factor)
            if (median := self.median(measure, **{**levels, factor: level})) is not None
        }
        wanted = choose(medians.values()) if medians else None
        return next((level for level, median in medians.items() if median == wanted), None)

    @property
    def failures(self) -> list[Row]:
        return [row for row in self.rows if row.problem and not row.is_left_out]

    @property
    def left_out(self) -> dict[str, list[Point]]:
        """Returns the reasons, each with its points."""
        reasons: dict[str, list[Point]] = {}
        for row in self.rows:
            if row.is_left_out and row.point not in reasons.setdefault(row.problem, []):
                reasons[row.problem].append(row.point)
        return reasons


def _matches(point: Point, levels: Mapping[str, Value]) -> bool:
    return all(point.get(name) == level for name, level in levels.items())


def _without(point: Point, names: set[str]) -> tuple[tuple[str, Value], ...]:
    return tuple((name, level) for name, level in point.items() if name not in names)
