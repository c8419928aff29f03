# SPDX-License-Identifier: BSD-2-Clause
"""Writes the table of an experiment: a line for each point, with medians."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from livedma.lab.experiment.design import Column, Experiment
from livedma.lab.experiment.runs import Runs

__all__ = ["Cell", "as_text", "columns_of", "lines_of"]


@dataclass(frozen=True)
class Cell:
    text: str
    spread: str = ""  #: from the least to the greatest, if they differ


def columns_of(experiment: Experiment, runs: Runs) -> list[Column]:
    """Returns the factors, and the measures that at least one run has."""
    measured = {name for row in runs for name, value in row.measures.items() if value is not None}
    return [*experiment.factors, *(m for m in experiment.measures if m.name in measured)]


def lines_of(experiment: Experiment, runs: Runs, columns: Sequence[Column]) -> Iterator[list[Cell]]:
    """Yields a cell for each column; a point of which nothing was measured has no line."""
    factors = {factor.name for factor in experiment.factors}
    for point in runs.points():
        here = runs.where(**point)
        if all(row.problem for row in here):
            continue
        yield [
            Cell(column.text(point[column.name])) if column.name in factors else _cell(here, column)
            for column in columns
        ]


def _cell(runs: Runs, column: Column) -> Cell:
    if not column.unit:
        words = dict.fromkeys(str(row.measures.get(column.name, "-")) for row in runs)
        return Cell(" / ".join(words))
    if column.unit == "lines":
        counts = [column.text(row.measures.get(column.name) or "") for row in runs]
        return Cell(" / ".join(dict.fromkeys(counts)))
    spread = runs.spread(column.name)
    if spread is None:
        return Cell("-")
    low, median, high = (column.text(v) for v in (spread.low, spread.median, spread.high))
    return Cell(median, "" if low == high else f"{low} to {high}")


def as_text(experiment: Experiment, runs: Runs) -> str:
    """Returns the table for a terminal; empty if it has too many lines for one."""
    brief = experiment.brief
    if brief == ():
        return ""
    names = {factor.name for factor in experiment.factors}
    columns = [
        column
        for column in columns_of(experiment, runs)
        if brief is None or column.name in names or column.name in brief
    ]
    heads = [column.label.split(" ") for column in columns]
    body = [[cell.text for cell in line] for line in lines_of(experiment, runs, columns)]
    widths = [
        max(len(text) for text in (*head, *(line[i] for line in body)))
        for i, head in enumerate(heads)
    ]
    height = max(len(head) for head in heads)
    tops = [
        [head[i - (height - len(head))] if i >= height - len(head) else "" for head in heads]
        for i in range(height)
    ]
    rows = [*tops, ["-" * width for width in widths], *body]
    return "\n".join(_line(row, widths, columns) for row in rows)


def _line(texts: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    cells = (
        text.rjust(width) if column.unit else text.ljust(width)
        for text, width, column in zip(texts, widths, columns, strict=True)
    )
    return "  ".join(cells).rstrip()
