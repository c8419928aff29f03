# SPDX-License-Identifier: BSD-2-Clause
"""Runs a ramp with and without a forecast: how many calls wait for memory, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from livedma.lab.experiment import ablations
from livedma.lab.experiment.data import records
from livedma.lab.experiment.design import Column, Experiment, Form, Measures, Panel, Point, Section
from livedma.lab.experiment.quantities import quantity, times
from livedma.lab.experiment.runs import Runs, Spread
from livedma.lab.experiment.trial import Trial
from livedma.lab.experiment.wording import confidence
from livedma.nfs.control import Control

__all__ = ["FORECAST", "REACTIVE", "Aheads", "Watched"]

REACTIVE, FORECAST = "reactive", "forecast"
_OPTIONS = {REACTIVE: "--ahead=0s", FORECAST: "--ahead=0.8s"}
_SESSIONS_PER_S = 16.0
_QUICK_S, _FULL_S = 6.0, 20.0  # with all sessions, after the ramp
_EVERY_S = 0.05
_WAITS_MOST, _MAPPED_MOST = 0.1, 1.25  # of those of the reactive runs


@dataclass
class Watched:
    """Holds what was mapped at each look, and how many calls have waited for a buffer so far."""

    mapped: list[tuple[float, int]] = field(default_factory=list)
    waited: int = 0

    @property
    def mean_bytes(self) -> float:
        """Returns what was mapped on average over the time, not over the looks."""
        spans = list(zip(self.mapped, self.mapped[1:], strict=False))
        whole_s = self.mapped[-1][0] - self.mapped[0][0] if spans else 0.0
        if not whole_s:
            return float(self.mapped[-1][1]) if self.mapped else 0.0
        return sum(size * (then_s - at_s) for (at_s, size), (then_s, _) in spans) / whole_s


@contextmanager
def _watching(path: Path) -> Iterator[Watched]:
    """Looks at the server's connections until the block ends."""
    found, is_over = Watched(), Event()

    def watch() -> None:
        with Control(path) as control:
            while True:
                rows = [one for one in control.ask("connections") if one["kind"] == "rdma"]
                found.mapped.append((time.monotonic(), sum(one["mapped"] for one in rows)))
                found.waited = sum(one["buffer_waits"]["count"] for one in rows)
                if is_over.wait(_EVERY_S):
                    return

    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(watch)
        try:
            yield found
        finally:
            is_over.set()
        watching.result()


class Aheads(Experiment):
    name = "ahead"
    question = (
        "Do fewer calls wait for memory if it is mapped by a forecast, and what does it cost?"
    )
    factors = (Column("control", "controller"),)
    measures = (
        Column("waited", "calls that waited for memory", "count"),
        Column("mapped_mean_bytes", "mapped, on average", "bytes"),
        Column("mapped_bytes", "mapped at the end", "bytes"),
        Column("p99_us", "p99", "us"),
        Column("ops_per_s", "operations", "per_s"),
        Column("ahead", "steps made ahead", "count"),
        Column("later", "steps made once calls waited", "count"),
        Column("undos", "undone", "count"),
        Column("errors", "errors", "count"),
        Column("decisions", "lines logged", "lines"),
    )
    method = (
        "The ramp of `livedma experiment ramp`, at once: one connection with a quarter of its "
        "window mapped, 64 sessions with three reads under way each, 16 more sessions each second, "
        "then all of them for some seconds. The policy is extend in all runs. In half of them the "
        "server acts on no forecast (`--ahead 0s`), in the others on one of 0.8 s; they take "
        "turns.",
        "The server counts calls that found no free buffer. What was mapped is read from it 20 "
        "times a second, and averaged over the time of the whole run. The latency is the client's.",
    )
    limits = (
        "The ramp is steady. A load that jumps cannot be foreseen by its trend: then memory is "
        "mapped once calls wait, as without a forecast.",
    )
    point_limit_s = 120.0

    def __init__(self) -> None:
        self.hold_s = _QUICK_S

    def repetitions(self, form: Form) -> int:
        return self.repeats or (5 if form == "quick" else 9)

    def points(self, form: Form) -> list[Point]:
        self.hold_s = _QUICK_S if form == "quick" else _FULL_S
        return [{"control": REACTIVE}, {"control": FORECAST}]

    def run(self, point: Point) -> Measures:
        situation = ablations.MEMORY
        options = (_OPTIONS[str(point["control"])],)
        with Trial(situation, "extend", sessions=situation.sessions, options=options) as trial:
            trial.interval()
            with _watching(trial.server.control_path) as watched:
                trial.have_sessions(situation.sessions, _SESSIONS_PER_S)
                time.sleep(self.hold_s)
            figures, events = trial.interval(), trial.events()
            trial.finish()
        plans = [one for one in events if one["kind"] == "plan"]
        ahead = sum(" ahead: " in one["text"] for one in plans)
        return {
            "waited": watched.waited,
            "mapped_mean_bytes": watched.mean_bytes,
            "mapped_bytes": watched.mapped[-1][1],
            "p99_us": figures["latency_us"]["p99"],
            "ops_per_s": figures["operations_per_s"],
            "ahead": ahead,
            "later": len(plans) - ahead,
            "undos": sum(one["kind"] == "undo" for one in events),
            "errors": figures["errors"],
            "decisions": "\n".join(f"{one['after_s']:6.2f} s  {one['line']}" for one in events),
        }

    def answer(self, runs: Runs) -> list[str]:
        waits, mapped, late = (
            _ratio(runs, name) for name in ("waited", "mapped_mean_bytes", "p99_us")
        )
        if waits is None or mapped is None or late is None:
            return ["Too little was measured for an answer."]
        before, after = (runs.median("waited", control=one) for one in (REACTIVE, FORECAST))
        steps = sum(runs.values("ahead", control=FORECAST))
        undone = sum(runs.values("undos", control=FORECAST))
        errors = sum(runs.values("errors"))
        return [
            f"With a forecast {quantity(after, 'count')} calls waited for memory, without one "
            f"{quantity(before, 'count')} (medians): {_range(waits)}, where at most "
            f"{times(_WAITS_MOST)} is wanted ({_met(waits, _WAITS_MOST)}).",
            f"On average over the run {_range(mapped)} of the memory was mapped, where at most "
            f"{times(_MAPPED_MOST)} is wanted ({_met(mapped, _MAPPED_MOST)}).",
            f"The p99 is {_range(late)} of that without.",
            f"In {waits.count} runs with a forecast {steps:.0f} steps were made ahead, and "
            f"{undone:.0f} undone; {errors:.0f} errors in all runs. {confidence(waits.count)}",
        ]

    def panels(self, runs: Runs) -> Sequence[Panel]:
        return ()

    def sections(self, runs: Runs) -> Sequence[Section]:
        lines: list[str] = []
        for row in runs:
            said = str(row.measures.get("decisions") or "").splitlines()
            if row.repetition == 0 and said:
                lines += [f"-- {row.point['control']}", *said]
        return (Section("Decisions", ("Of the first turn.",), log=lines),)

    def setup(self, form: Form) -> Mapping[str, str]:
        first = ablations.MEMORY
        return {
            "server": f"livedma serve, {first.server_text}, --policy extend",
            "load": f"livedma load, {first.load_text}, verified, {first.sessions} sessions, "
            f"{_SESSIONS_PER_S:g} more each second",
            "after the ramp": f"{self.hold_s:g} s",
        }

    def files(self, runs: Runs) -> Mapping[str, list[dict[str, Any]]]:
        return {"ahead.json": records(runs)}


def _ratio(runs: Runs, measure: str) -> Spread | None:
    return runs.ratio(measure, {"control": FORECAST}, {"control": REACTIVE})


def _range(ratio: Spread) -> str:
    low, median, high = (times(value) for value in (ratio.low, ratio.median, ratio.high))
    return f"{median} ({low} to {high})"


def _met(ratio: Spread, most: float) -> str:
    return "reached" if ratio.median <= most else "NOT reached"
