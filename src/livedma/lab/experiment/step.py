# SPDX-License-Identifier: BSD-2-Clause
"""Asks how soon memory comes when it is short, and what the step costs an idle neighbour."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from livedma.errors import LabError
from livedma.lab.driver import Driver
from livedma.lab.experiment import ablations
from livedma.lab.experiment.data import records
from livedma.lab.experiment.design import Column, Experiment, Form, Measures, Panel, Point
from livedma.lab.experiment.quantities import quantity
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.statistic import quantile
from livedma.lab.experiment.trial import Trial
from livedma.monitor.snapshot import Snapshot
from livedma.wire.words import amount

__all__ = ["Steps"]

CONTROLLER, HAND = "controller", "hand"

_CALM, _SHORT = 8, 32  # sessions: enough memory, and too little
_HAND_STEPS = 12
_STEP_BYTES = 4 << 20
_WINDOW_S = 0.25  # the time over which the neighbour's longest request is taken
_REST_S = 0.5
_ACT_LIMIT_S = 10.0
_LOOK_S = 0.01
_SOON_NS, _STALL_NS = 500e6, 10e6

_SITUATION = replace(ablations.MEMORY, sessions=_SHORT)


class Steps(Experiment):
    name = "step"
    question = "How soon is more memory in use when it is short, and whom does the step delay?"
    factors = (Column("by", "extended by"), Column("step", "step", "count"))
    within = ("step",)
    measures = (
        Column("waiting_to_use_ns", "from the first wait seen to use", "ns"),
        Column("degraded_to_use_ns", "from degraded to use", "ns"),
        Column("degraded_to_done_ns", "from degraded to mapped", "ns"),
        Column("took_ns", "the step itself", "ns"),
        Column("longest_ns", "neighbour's longest request, with a step", "ns"),
        Column("longest_without_ns", "neighbour's longest request, without", "ns"),
        Column("delay_ns", "delay by the step", "ns"),
    )
    method = (
        f"By the controller: {_CALM} sessions run, which have enough; then {_SHORT} do, which have "
        "not. Snapshots are read as they come. The time runs from the first snapshot in which a "
        "call waited for a data buffer, and from the first that was called degraded, until more "
        "buffers are taken at once than there were before.",
        "By hand: with the same load, under static, 4 MiB are mapped and given back again and "
        f"again by the control socket. A neighbour, with a connection of its own to the same "
        f"device, reads 4 KiB with 16 requests under way. Of {_WINDOW_S:g} s with a step in them "
        "its longest request is compared with that of as long a time without one, just before.",
    )
    limits = (
        "The neighbour's longest request also grows by whatever this machine does meanwhile: that "
        "is why each step has a time without one beside it, and the difference is what counts.",
        "Memory is mapped by a software device: what a kernel or a NIC takes for its tables is not "
        "here.",
    )
    point_limit_s = 120.0

    def points(self, form: Form) -> list[Point]:
        return [{"by": CONTROLLER}, {"by": HAND}]

    def repetitions(self, form: Form) -> int:
        return self.repeats or (4 if form == "quick" else 20)

    def run(self, point: Point) -> Measures:
        return self.rows(point)[-1][1]

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        by_hand = point["by"] == HAND
        with Trial(_SITUATION, "static" if by_hand else "extend", sessions=_SHORT) as trial:
            found: list[tuple[Point, Measures]]
            found = list(_by_hand(trial)) if by_hand else [({"step": 0}, _by_controller(trial))]
            trial.finish()
        return found

    def answer(self, runs: Runs) -> list[str]:
        by_controller, by_hand = (runs.where(by=by) for by in (CONTROLLER, HAND))
        return [
            *_worst(by_controller, "waiting_to_use_ns", "From the first wait to its use", _SOON_NS),
            *_worst(by_controller, "degraded_to_use_ns", "From degraded to its use", _SOON_NS),
            *_worst(by_hand, "delay_ns", "The delay of a neighbour's request by a step", _STALL_NS),
            *_chance(by_hand),
            *_worst(by_hand, "took_ns", "The step itself", None),
        ] or ["Too little was measured for an answer."]

    def panels(self, runs: Runs) -> Sequence[Panel]:
        return (
            Panel("use", "From degraded to use", "by", "degraded_to_use_ns", "by", is_log=False),
            Panel("delay", "Delay by the step", "by", "delay_ns", "by", is_log=False),
        )

    def setup(self, form: Form) -> Mapping[str, str]:
        return {
            "server": f"livedma serve, {_SITUATION.server_text}",
            "load": f"livedma load, {_SITUATION.load_text}",
            "neighbour": "livedma load, 4 sessions, 4 x 4 KiB read a session, from the same host",
        }

    def files(self, runs: Runs) -> Mapping[str, list[dict[str, Any]]]:
        return {"step.json": records(runs)}


def _worst(runs: Runs, measure: str, what: str, most: float | None) -> Iterator[str]:
    values = runs.values(measure)
    if not values:
        return
    median, high, worst = statistics.median(values), quantile(values, 0.95), max(values)
    figures = ", ".join(
        f"{name} {quantity(value, 'ns')}"
        for name, value in (("median", median), ("p95", high), ("worst", worst))
    )
    bar = ""
    if most is not None:
        bar = f"; wanted is {quantity(most, 'ns')} at most: {'reached' if worst <= most else 'NOT'}"
    yield f"{what}: {figures} of {amount(len(values), 'step')}{bar}."


def _chance(runs: Runs) -> Iterator[str]:
    """Says how far the difference goes the other way, for which no step can be the reason."""
    values = runs.values("delay_ns")
    if values and min(values) < 0:
        yield (
            f"That is by chance as well: in the worst case the request without a step was "
            f"{quantity(-min(values), 'ns')} longer than the one with it."
        )


def _by_controller(trial: Trial) -> Measures:
    trial.have_sessions(_CALM)
    time.sleep(_REST_S * 2)
    trial.events()
    before = trial.state()
    watch = _Watch(trial, before.buffers)
    trial.load.order(f"sessions {_SHORT}")
    watch.until_used(_ACT_LIMIT_S)
    trial.load.answer(60.0)
    return watch.measures()


class _Watch:
    """Watches a server until more buffers are taken than there were."""

    def __init__(self, trial: Trial, buffers: int) -> None:
        self._trial, self._buffers = trial, buffers
        self._waiting_s: float | None = None
        self._used_s: float | None = None

    def until_used(self, limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            self._look()
            if self._used_s is not None:
                return
            time.sleep(_LOOK_S)
        raise LabError(f"no more memory was used within {limit_s:g} s")

    def _look(self) -> None:
        if self._waiting_s is None:
            snapshot = Snapshot.from_json(self._trial.control.ask("snapshot", sessions=False))
            waits = (one.inside.memory_waits.count for one in snapshot.connections if one.inside)
            if any(waits):
                self._waiting_s = snapshot.at_s
        if self._trial.state().buffers_taken > self._buffers:
            self._used_s = time.monotonic()

    def measures(self) -> Measures:
        events = self._trial.events()
        degraded_s, done_s = (
            next((event["at_s"] for event in events if event["kind"] == kind), None)
            for kind in ("degraded", "done")
        )

        def since_ns(start_s: float | None, end_s: float | None) -> float | None:
            return None if start_s is None or end_s is None else (end_s - start_s) * 1e9

        took_ms = next((e["data"].get("took_ms") for e in events if e["kind"] == "done"), None)
        return {
            "waiting_to_use_ns": since_ns(self._waiting_s, self._used_s),
            "degraded_to_use_ns": since_ns(degraded_s, self._used_s),
            "degraded_to_done_ns": since_ns(degraded_s, done_s),
            "took_ns": None if took_ms is None else took_ms * 1e6,
        }


def _by_hand(trial: Trial) -> Iterator[tuple[Point, Measures]]:
    trial.have_sessions(_SHORT)
    (number,) = (one["number"] for one in trial.control.ask("connections") if one["kind"] == "rdma")
    neighbour = trial.stage.drive("--sessions=4", "--depth=4", "--size=4096", "--seconds=600")
    neighbour.ask("sessions 4")
    time.sleep(_REST_S)
    for step in range(_HAND_STEPS):
        neighbour.ask("interval")
        time.sleep(_WINDOW_S)
        without_ns = _longest_ns(neighbour)
        began_ns = time.perf_counter_ns()
        trial.control.ask("extend", connection=number, bytes=_STEP_BYTES)
        took_ns = time.perf_counter_ns() - began_ns
        time.sleep(max(_WINDOW_S - took_ns * 1e-9, 0))
        longest_ns = _longest_ns(neighbour)
        yield (
            {"step": step},
            {
                "took_ns": took_ns,
                "longest_ns": longest_ns,
                "longest_without_ns": without_ns,
                "delay_ns": longest_ns - without_ns,
            },
        )
        trial.control.ask("shrink", connection=number, bytes=_STEP_BYTES)
        time.sleep(_REST_S)
    neighbour.finish()


def _longest_ns(neighbour: Driver) -> float:
    return float(neighbour.ask("interval")["latency_us"]["max"]) * 1e3
