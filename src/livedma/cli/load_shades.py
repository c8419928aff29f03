# SPDX-License-Identifier: BSD-2-Clause
"""Colours livedma load's table on a terminal: marks what is worse than the run's own best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from livedma.cli.paint import Paint
from livedma.nfs.load.result import Interval

__all__ = ["Shades"]

# Each interval is compared with the best one that the run had so far.
_SLOW, _VERY_SLOW = 2.0, 4.0  # p99, as a multiple of the best one
_LESS, _MUCH_LESS = 0.7, 0.4  # MB/s, as a share of the most with as many sessions or fewer
_MANY_WAITED = 0.5  # of the operations of an interval
_LABEL = 12  # columns of the label that begins a line below the table
_TIGHT = 86  # a terminal with fewer columns gets narrower ones
_CURVE = 60


class Shades:
    """Chooses the colours of one run. Its intervals have to come in their order."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint
        self._best_p99_us: float | None = None
        self._rates: list[tuple[int, float]] = []  # (sessions, bytes/s) of each interval

    def colors(self, interval: Interval, latency_us: Mapping[str, float]) -> dict[str, str]:
        """Returns a colour for each column that stands out."""
        found = {"time": "dim"}
        rate = interval.bytes / interval.length_s
        best = max((one for count, one in self._rates if count <= interval.sessions), default=0.0)
        if best > 0:
            share = rate / best
            found["MB/s"] = "red" if share < _MUCH_LESS else "amber" if share < _LESS else ""
        self._rates.append((interval.sessions, rate))
        p99_us = latency_us["p99"]
        if interval.operations:
            best_us = min(p99_us, self._best_p99_us or p99_us)
            self._best_p99_us = best_us
            found["p99"] = _level(p99_us / max(best_us, 1e-3), _SLOW, _VERY_SLOW)
            many = _MANY_WAITED * interval.operations
            found["waited"] = "amber" if interval.waited > many else ""
        found["errors"] = "red" if interval.errors else "dim"
        return found

    def line(
        self,
        names: tuple[str, ...],
        cells: tuple[str, ...],
        widths: tuple[int, ...],
        colors: Mapping[str, str],
    ) -> str:
        """Formats a row of cells; on a narrow terminal each cell is one column narrower."""
        less = int(self._paint.is_terminal and self._paint.width < _TIGHT)
        parts = zip(names, cells, widths, strict=True)
        return " ".join(
            self._paint.color(colors.get(name, ""), cell.rjust(width - less))
            for name, cell, width in parts
        )

    def header(self, names: tuple[str, ...], widths: tuple[int, ...]) -> str:
        return self.line(names, names, widths, dict.fromkeys(names, "dim"))

    def heading(self, text: str) -> str:
        lines = self._paint.wrapped(text) if self._paint.is_terminal else [text]
        return "\n".join(map(self._paint.bold, lines))

    def totals(self, lines: Iterable[str]) -> Iterator[str]:
        """Yields the lines below the table; on a terminal, first a curve of the bandwidth."""
        if not self._paint.is_terminal:
            yield from lines
            return
        cells = min(self._paint.width - _LABEL - 32, _CURVE)
        rates = [rate for _, rate in self._rates]
        if len(rates) > 1 and (curve := self._paint.spark(rates, cells)):
            least, most = min(rates) / 1e6, max(rates) / 1e6
            shown = f"{self._paint.color('green', curve)} {least:,.1f} to {most:,.1f} MB/s"
            yield self._paint.dim(f"{'bandwidth':{_LABEL}}") + shown
        for line in lines:
            label, text = line[:_LABEL], line[_LABEL:]
            is_bad = label.startswith("errors") and text != "none"
            yield from self._paint.wrapped(text, label, first_color="red" if is_bad else "dim")


def _level(value: float, amber: float, red: float) -> str:
    return "red" if value > red else "amber" if value > amber else ""
