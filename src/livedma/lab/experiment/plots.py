# SPDX-License-Identifier: BSD-2-Clause
"""Plots an experiment, as SVG and PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullFormatter,
)

from livedma.lab.experiment.design import Experiment, Panel
from livedma.lab.experiment.quantities import Value
from livedma.lab.experiment.runs import Runs, Spread

__all__ = ["INK", "PALETTE", "draw"]

#: Colours of Okabe and Ito, distinct also for the colour-blind; the page has lighter ones for dark.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: Text and axes, grid, background.
INK = ("#22262b", "#d4d8dd", "#fefefe")

_MARKERS = "osD^vP"
_SIZE_IN = (4.3, 3.2)
_PNG_DPI = 200
_SPAN_FOR_LOG = 4.0  # if the greatest is less than this times the least, a log axis is of no use

_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK[0],
    "axes.labelcolor": INK[0],
    "axes.titlecolor": INK[0],
    "text.color": INK[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "axes.facecolor": INK[2],
    "figure.facecolor": INK[2],
    "savefig.facecolor": INK[2],
    "grid.color": INK[1],
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "livedma",
}

Line = tuple[str, int, list[tuple[Value, Spread]]]
"""A name, the place of its level among those of the factor (its colour), and the points."""


def draw(experiment: Experiment, panel: Panel, runs: Runs) -> tuple[str, bytes]:
    """Returns the panel as SVG and as PNG."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE_IN, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        lines = _lines(experiment, panel, runs)
        if experiment.column(panel.x).unit:
            _draw_lines(axes, lines)
            _scale_x(axes, experiment, panel, lines)
        else:
            _draw_dots(axes, lines)
        _scale_y(axes, experiment, panel, lines)
        axes.set_title(panel.title)
        if len(lines) > 1:
            figure.legend(loc="outside lower left", ncols=min(len(lines), 3), borderpad=0.2)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def _lines(experiment: Experiment, panel: Panel, runs: Runs) -> list[Line]:
    """Returns the lines that have data."""
    series, found = experiment.column(panel.series), []
    here = runs.where(**panel.where)
    for place, level in enumerate(runs.levels(panel.series)):
        of_level = here.where(**{panel.series: level})
        points = [
            (x, spread)
            for x in of_level.levels(panel.x)
            if (spread := of_level.spread(panel.y, **{panel.x: x})) is not None
        ]
        if points:
            name = f"{series.label} {series.text(level)}" if series.unit else str(level)
            found.append((name, place, points))
    return found


def _look(place: int) -> dict[str, Any]:
    """Returns the look of a series; beyond the palette, the same colours have hollow markers."""
    color = PALETTE[place % len(PALETTE)]
    return {
        "color": color,
        "marker": _MARKERS[place % len(_MARKERS)],
        "markerfacecolor": color if place < len(PALETTE) else "none",
    }


def _error(points: Sequence[tuple[Value, Spread]]) -> list[list[float]]:
    spreads = [spread for _, spread in points]
    return [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]


def _draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    for name, place, points in lines:
        axes.errorbar(
            [float(x) for x, _ in points if x is not None],
            [spread.median for _, spread in points],
            yerr=_error(points),
            label=name,
            linestyle="-" if place < len(PALETTE) else "--",
            elinewidth=1,
            capsize=2,
            **_look(place),
        )


def _draw_dots(axes: Axes, lines: Sequence[Line]) -> None:
    """Draws dots over words: side by side at each word."""
    words = list(dict.fromkeys(str(x) for _, _, points in lines for x, _ in points))
    for number, (name, place, points) in enumerate(lines):
        shift = (number - (len(lines) - 1) / 2) * 0.16
        axes.errorbar(
            [words.index(str(x)) + shift for x, _ in points],
            [spread.median for _, spread in points],
            yerr=_error(points),
            label=name,
            linestyle="none",
            elinewidth=1,
            capsize=2,
            **_look(place),
        )
    axes.set_xticks(range(len(words)), words)
    axes.set_xlim(-0.5, len(words) - 0.5)
    axes.grid(visible=False, axis="x")


def _scale_x(axes: Axes, experiment: Experiment, panel: Panel, lines: Sequence[Line]) -> None:
    column = experiment.column(panel.x)
    axes.set_xlabel(column.label)
    levels = sorted({float(x) for _, _, points in lines for x, _ in points if x is not None})
    if len(levels) > 1 and levels[0] > 0:
        axes.set_xscale("log", base=2)
    if len(levels) > 6:  # the levels in between can be guessed
        levels = levels[:: math.ceil(len(levels) / 6)]
    axes.xaxis.set_major_locator(FixedLocator(levels))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: column.text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)


def _scale_y(axes: Axes, experiment: Experiment, panel: Panel, lines: Sequence[Line]) -> None:
    column = experiment.column(panel.y)
    axes.set_ylabel(column.label)
    values = [v for _, _, points in lines for _, s in points for v in (s.low, s.high)]
    if panel.is_log and values and min(values) > 0 and max(values) > _SPAN_FOR_LOG * min(values):
        base = 2 if column.unit == "bytes" else 10
        axes.set_yscale("log", base=base)
        axes.yaxis.set_major_locator(LogLocator(base=base, numticks=7))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0, top=None if values and max(values) > 0 else 1)
        if column.unit == "bytes" and values and max(values) > 0:
            step = 2.0 ** math.ceil(math.log2(max(values) / 5))
            axes.yaxis.set_major_locator(MultipleLocator(step))
        else:
            axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: column.text(round(value, 12)) if value else "0")
    )
