# SPDX-License-Identifier: BSD-2-Clause
"""Asks, with a load that goes up and down, whether memory follows both ways without swinging by
itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from livedma.lab.experiment import ablations
from livedma.lab.experiment.data import records
from livedma.lab.experiment.design import Column, Experiment, Form, Measures, Panel, Point, Section
from livedma.lab.experiment.quantities import quantity, times
from livedma.lab.experiment.runs import Row, Runs
from livedma.lab.experiment.statistic import reversals
from livedma.lab.experiment.trial import Trial
from livedma.wire.words import amount

__all__ = ["Tide", "Tides", "level_at"]

_LOW, _HIGH = 8, 64  # sessions
_EVERY_S = 1.0
_BACK = 0.10  # of the memory at the beginning: the most that the end may differ
_UNDOS_MOST = 1
_MOVE = 0.1  # of the memory at first: a smaller change does not count as a turn


@dataclass(frozen=True)
class Tide:
    """Says how long each state of the tide lasts. rest_s: at low water, at the beginning and, at
    most, at the end until memory is back."""

    seconds: float
    period_s: float
    rest_s: float


_QUICK = Tide(seconds=80.0, period_s=40.0, rest_s=30.0)
_FULL = Tide(seconds=600.0, period_s=100.0, rest_s=60.0)


def level_at(at_s: float, tide: Tide) -> int:
    """Returns the sessions of a triangle that begins and ends at low water."""
    if not 0 <= at_s < tide.seconds:
        return _LOW
    phase = at_s % tide.period_s / tide.period_s
    return _LOW + round((_HIGH - _LOW) * (2 * phase if phase < 0.5 else 2 - 2 * phase))


class Tides(Experiment):
    name = "tide"
    question = "Does memory follow a load that goes up and down, both ways and without swinging?"
    factors = (Column("policy", "policy"), Column("at_s", "time", "s"))
    within = ("at_s",)
    measures = (
        Column("sessions", "sessions", "count"),
        Column("ops_per_s", "operations", "per_s"),
        Column("bytes_per_s", "bandwidth", "bytes_per_s"),
        Column("p99_us", "p99", "us"),
        Column("errors", "errors", "count"),
        Column("connections", "connections", "count"),
        Column("mapped_bytes", "mapped", "bytes"),
        Column("first_bytes", "mapped at first", "bytes"),
        Column("buffers", "data buffers", "count"),
        Column("extensions", "extensions", "count"),
        Column("shrinks", "given back", "count"),
        Column("undos", "undone", "count"),
        Column("decisions", "lines logged", "lines"),
    )
    brief = ()
    method = (
        f"One connection. Sessions go up from {_LOW} to {_HIGH} and down again, in a triangle: "
        "those that are too many finish what they have under way and rest; later they go on. "
        "Server, store and requests are those of the ramp. Every second the load's figures and "
        "the server's memory are read.",
        "At the end the load stays low until memory is back where it was, within 10 %, or time is "
        "up. A turn of memory is a change from growing to shrinking or back, of at least 10 % of "
        "what was mapped at first: no more than the tide's own turns means that it does not "
        "swing by itself.",
    )
    limits = (
        "The tide is regular. Load that comes in bursts shorter than a controller's check (a "
        "second) is another matter: it is not followed, by design.",
    )
    point_limit_s = 900.0

    def __init__(self) -> None:
        self.tide = _QUICK

    def repetitions(self, form: Form) -> int:
        return self.repeats or 1

    def points(self, form: Form) -> list[Point]:
        self.tide = _QUICK if form == "quick" else _FULL
        return [
            {"policy": policy} for policy in ("extend", "static")[: 1 if form == "quick" else 2]
        ]

    def run(self, point: Point) -> Measures:
        return self.rows(point)[-1][1]

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        with Trial(ablations.MEMORY, str(point["policy"]), sessions=_HIGH) as trial:
            trial.have_sessions(_LOW)
            trial.interval()
            found = list(self._watched(trial))
            trial.finish()
        return found

    def _watched(self, trial: Trial) -> Iterator[tuple[Point, Measures]]:
        tide, began_s = self.tide, time.monotonic()
        counts = {"done": 0, "shrink": 0, "undo": 0}
        due_s = began_s
        while True:
            due_s += _EVERY_S
            time.sleep(max(due_s - time.monotonic(), 0))
            figures, state, events = trial.interval(), trial.state(), trial.events()
            at_s = time.monotonic() - began_s
            for event in events:
                if event["kind"] in counts:
                    counts[event["kind"]] += 1
            yield (
                {"at_s": round(at_s, 1)},
                {
                    "sessions": figures["sessions"],
                    "ops_per_s": figures["operations_per_s"],
                    "bytes_per_s": figures["bytes_per_s"],
                    "p99_us": figures["latency_us"]["p99"],
                    "errors": figures["errors"],
                    "connections": state.connections,
                    "mapped_bytes": state.mapped_bytes,
                    "first_bytes": trial.first.mapped_bytes,
                    "buffers": state.buffers,
                    "extensions": counts["done"],
                    "shrinks": counts["shrink"],
                    "undos": counts["undo"],
                    "decisions": "\n".join(
                        f"{event['at_s'] - began_s:6.1f} s  {event['line']}" for event in events
                    ),
                },
            )
            is_back = _is_back(state.mapped_bytes, trial.first.mapped_bytes)
            if at_s >= tide.seconds + (1 if is_back else tide.rest_s):
                return
            trial.have_sessions(level_at(at_s, tide))

    def answer(self, runs: Runs) -> list[str]:
        found = {
            str(policy): list(_by_repetition(runs.where(policy=policy)))
            for policy in runs.levels("policy")
        }
        several = {policy: series for policy, series in found.items() if len(series) > 1}
        together = [_together(policy, series) for policy, series in several.items()]
        each = [_told(policy, one) for policy, series in found.items() for one in series]
        return [*together, *each] or ["Too little was measured for an answer."]

    def panels(self, runs: Runs) -> Sequence[Panel]:
        names = {
            "sessions": "Sessions",
            "mapped_bytes": "Memory mapped",
            "bytes_per_s": "Bandwidth",
            "p99_us": "Latency, 99th percentile",
        }
        return [
            Panel(measure.partition("_")[0], title, "at_s", measure, "policy", is_log=False)
            for measure, title in names.items()
        ]

    def sections(self, runs: Runs) -> Sequence[Section]:
        lines = [
            line
            for row in runs.where(policy="extend")
            if row.repetition == 0
            for line in str(row.measures.get("decisions") or "").splitlines()
        ]
        return (Section("Decisions", ("Of the first run under extend.",), log=lines),)

    def setup(self, form: Form) -> Mapping[str, str]:
        first = ablations.MEMORY
        return {
            "server": f"livedma serve, {first.server_text}",
            "load": f"livedma load, {first.load_text}, verified, {_LOW} to {_HIGH} sessions",
            "tide": f"{self.tide.seconds:g} s, a period of {self.tide.period_s:g} s",
        }

    def files(self, runs: Runs) -> Mapping[str, list[dict[str, Any]]]:
        return {"tide.json": records(runs)}


def _is_back(mapped: float, first: float) -> bool:
    return abs(mapped / first - 1) <= _BACK


def _by_repetition(runs: Runs) -> Iterator[list[Row]]:
    for repetition in sorted({row.repetition for row in runs}):
        rows = [row for row in runs if row.repetition == repetition and not row.problem]
        if rows:
            yield rows


def _together(policy: str, runs: list[list[Row]]) -> str:
    """Sums up several runs: the medians, and from the least to the greatest."""

    def spread(values: list[float], text: Callable[[float], str]) -> str:
        low, high = text(min(values)), text(max(values))
        return text(median(values)) + (f" ({low} to {high})" if low != high else "")

    def size(value: float) -> str:
        return quantity(value, "bytes")

    mapped = [[float(str(row.measures["mapped_bytes"])) for row in rows] for rows in runs]
    first = [float(str(rows[0].measures["first_bytes"])) for rows in runs]
    ends = [one[-1] / begin for one, begin in zip(mapped, first, strict=True)]
    back = sum(_is_back(one[-1], begin) for one, begin in zip(mapped, first, strict=True))
    return (
        f"In {len(runs)} runs under {policy}, memory went up to "
        f"{spread([max(one) for one in mapped], size)} and ended at {spread(ends, times)} of what "
        f"it was: it was back in {back} of {len(runs)}."
    )


def _told(policy: str, rows: list[Row]) -> str:
    def series(name: str) -> list[float]:
        return [float(str(row.measures[name])) for row in rows]

    mapped, sessions, first = series("mapped_bytes"), series("sessions"), series("first_bytes")[0]
    last = {name: int(series(name)[-1]) for name in ("extensions", "shrinks", "undos")}
    turns, tides = reversals(mapped, first * _MOVE), reversals(sessions, (_HIGH - _LOW) / 2)
    back = "back" if _is_back(mapped[-1], first) else "NOT back"
    is_calm = turns <= tides and last["undos"] <= _UNDOS_MOST
    return (
        f"Under {policy}, memory went from {quantity(first, 'bytes')} to "
        f"{quantity(max(mapped), 'bytes')} and ended at {times(mapped[-1] / first)} of what it was "
        f"({back}): {amount(last['extensions'], 'extension')}, "
        f"{last['shrinks']} times given back, {last['undos']} undone, in "
        f"{rows[-1].point['at_s']} s; "
        f"it turned {turns} times, the tide {tides} times ({'calm' if is_calm else 'NOT calm'}); "
        f"{amount(int(sum(series('errors'))), 'error')}."
    )
