# SPDX-License-Identifier: BSD-2-Clause
"""Defines the parts of an experiment."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from livedma.errors import LivedmaError
from livedma.lab.experiment.quantities import UNITS, Value, quantity

if TYPE_CHECKING:
    from livedma.lab.experiment.runs import Runs

__all__ = [
    "Column",
    "Experiment",
    "Form",
    "LeftOut",
    "Measures",
    "Panel",
    "Point",
    "Section",
    "grid",
]

Form = Literal["quick", "full"]
Point = Mapping[str, Value]  #: a level of every factor
Measures = Mapping[str, Value]


_PLAIN = ("", "count", "ratio", "share", "lines")


class LeftOut(LivedmaError):
    """Leaves out a point that this machine cannot measure; the text says why and what helps."""


@dataclass(frozen=True)
class Column:
    """Describes a factor or a measure: its name in the data, its name for people, and its unit."""

    name: str
    label: str
    unit: str = ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"{self.name}: {self.unit!r} is no unit")
        if self.unit not in _PLAIN and not f"_{self.name}".endswith(f"_{self.unit}"):
            raise ValueError(f"{self.name}: the name has to end in _{self.unit}")

    def text(self, value: Value) -> str:
        return quantity(value, self.unit)


@dataclass(frozen=True)
class Panel:
    """Describes one plot: a measure over a factor, a line for each level of another; `where` fixes
    others."""

    name: str
    title: str
    x: str
    y: str
    series: str
    where: Point = field(default_factory=dict)
    is_log: bool = True  #: the measure's axis; a factor that is a number always has a log axis


@dataclass(frozen=True)
class Section:
    """Adds a part to the page that only this experiment has: words, a table, lines of a log."""

    title: str
    paragraphs: Sequence[str] = ()
    head: Sequence[str] = ()
    body: Sequence[Sequence[str]] = ()
    log: Sequence[str] = ()


class Experiment(ABC):
    """Asks a question, and computes its answer. `run` has a process of its own for every point."""

    name: ClassVar[str]
    question: ClassVar[str]  #: one sentence
    factors: ClassVar[tuple[Column, ...]]
    within: ClassVar[tuple[str, ...]] = ()  #: factors whose levels one run goes through
    measures: ClassVar[tuple[Column, ...]]
    brief: ClassVar[tuple[str, ...] | None] = None  #: measures for a terminal; None: all; (): none
    method: ClassVar[tuple[str, ...]]  #: paragraphs: what is done at a point, and what counts
    limits: ClassVar[tuple[str, ...]] = ()  #: paragraphs: what the figures do not show
    point_limit_s: ClassVar[float] = 60.0
    #: The answer is over many points, each of which needs one run at most.
    is_over_points: ClassVar[bool] = False
    repeats: int | None = None  #: instead of those of the form

    @abstractmethod
    def points(self, form: Form) -> list[Point]: ...

    def repetitions(self, form: Form) -> int:
        return self.repeats or (4 if form == "quick" else 7)

    def takes_part(self, point: Point, turn: int, form: Form) -> bool:
        """Returns whether the point is measured in that turn: some points need fewer."""
        return True

    def around(self, form: Form) -> AbstractContextManager[None]:
        """Sets up what has to hold while points are measured; undone at the end in any case."""
        return nullcontext()

    @abstractmethod
    def run(self, point: Point) -> Measures:
        """Measures a point. Raises LeftOut if this machine cannot do it."""

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        """Returns a run's rows: one, or one for each level of the factors in `within`."""
        return [({}, self.run(point))]

    @abstractmethod
    def answer(self, runs: Runs) -> list[str]:
        """Returns the findings, as sentences; the first answers the question."""

    @abstractmethod
    def panels(self, runs: Runs) -> Sequence[Panel]: ...

    def setup(self, form: Form) -> Mapping[str, str]:
        """Returns what was built to measure it, by name."""
        return {}

    def sections(self, runs: Runs) -> Sequence[Section]:
        return ()

    def files(self, runs: Runs) -> Mapping[str, list[dict[str, Any]]]:
        """Returns rows for programs, by the name of a JSON file beside the Parquet file."""
        return {}

    def options(self) -> str:
        """Returns the options of the command line that give this experiment."""
        return "" if self.repeats is None else f" --repeats {self.repeats}"

    def column(self, name: str) -> Column:
        return next(c for c in (*self.factors, *self.measures) if c.name == name)

    def describe(self, point: Point) -> str:
        return ", ".join(
            f"{factor.label} {factor.text(point[factor.name])}"
            for factor in self.factors
            if point.get(factor.name) is not None
        )


def grid(**levels: Sequence[Value]) -> Iterator[Point]:
    """Yields all combinations of the levels."""
    for values in itertools.product(*levels.values()):
        yield dict(zip(levels, values, strict=True))
