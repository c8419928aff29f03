# SPDX-License-Identifier: BSD-2-Clause
"""Shows a demo: rows with the decisions made in them, and a last row that is always current."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from livedma.cli import demo_page as page
from livedma.cli.paint import Paint

if TYPE_CHECKING:
    from livedma.lab.ramp import Run

__all__ = ["Screen"]

_ROW_EVERY_S = 3.0
_ROUNDING_S = 0.5  # intervals are a second long, more or less
_END_S = 0.05  # the last interval may end so much before the ramp


class Screen:
    """Prints a demo. On a terminal the last line of a ramp shows the present; elsewhere all lines
    stay.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.paint = Paint(file)
        self._is_live = self.paint.is_terminal
        self._ramps = 0
        self._run: Run | None = None
        self._intervals = self._events = 0
        self._row_due_s = 0.0

    def say(self, *lines: str) -> None:
        print("\n".join(lines), file=self._file, flush=True)

    def look(self, run: Run) -> None:
        """Shows what is new. An interval is shown with all decisions made until its end."""
        self.wipe()
        if run is not self._run:
            self._begin(run)
        if not run.intervals or not run.moments:
            return
        while self._intervals < len(run.intervals):
            self._intervals += 1
            self._end_interval(run, run.intervals[self._intervals - 1])
        if self._is_live and not run.total:
            moment = run.moments[-1]
            row = page.row(moment.at_s, run.intervals[-1], moment, run.ramp, self.paint)
            print(row, end="", file=self._file, flush=True)

    def _begin(self, run: Run) -> None:
        self._run = run
        self._intervals = self._events = 0
        self._row_due_s = 0.0
        self.say("", page.act(run.policy, run.source, again=self._ramps > 0, paint=self.paint))
        self._ramps += 1

    def _end_interval(self, run: Run, interval: dict[str, Any]) -> None:
        """Prints a row if one is due or if something was decided."""
        at_s = interval["at_s"]
        decided = []
        while self._events < len(run.events) and run.events[self._events]["at_s"] <= at_s:
            decided.append(run.events[self._events])
            self._events += 1
        several = any(len(one.mapped) > 1 for one in run.moments)
        told = (page.event_lines(one, several=several, paint=self.paint) for one in decided)
        lines = [line for one in told for line in one]
        is_due = at_s >= min(self._row_due_s, run.ramp.seconds - _END_S)
        if lines or (is_due and interval["sessions"]):
            self._row_due_s = at_s + _ROW_EVERY_S - _ROUNDING_S
            moment = next((one for one in run.moments if one.at_s >= at_s), run.moments[-1])
            self.say(page.row(at_s, interval, moment, run.ramp, self.paint), *lines)

    def wipe(self) -> None:
        """Clears the row that shows the present."""
        if self._is_live:
            print("\r\x1b[K", end="", file=self._file, flush=True)
