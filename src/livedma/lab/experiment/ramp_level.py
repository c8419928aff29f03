# SPDX-License-Identifier: BSD-2-Clause
"""Runs one level of a ramp: adds sessions, waits until the controller rests, and takes figures."""

from __future__ import annotations

import time
from dataclasses import dataclass

from livedma.control.diagnose.limits import Limit
from livedma.lab.experiment.design import Column, Measures
from livedma.lab.experiment.settling import Event, settle
from livedma.lab.experiment.trial import Trial

__all__ = ["COLUMNS", "Timing", "measure_level"]

_SESSIONS_PER_S = 16.0
_QUIET_S = 1.5

COLUMNS = (
    Column("ops_per_s", "operations", "per_s"),
    Column("bytes_per_s", "bandwidth", "bytes_per_s"),
    Column("p50_us", "p50", "us"),
    Column("p99_us", "p99", "us"),
    Column("max_us", "longest", "us"),
    Column("errors", "errors", "count"),
    Column("reconnects", "reconnects", "count"),
    Column("connections", "connections", "count"),
    Column("mapped_bytes", "mapped", "bytes"),
    Column("buffers_first", "data buffers at first", "count"),
    Column("buffers", "data buffers", "count"),
    Column("credits_first", "credits at first", "count"),
    Column("credits", "credits", "count"),
    Column("slots_set", "sessions with more slots", "count"),
    Column("refused", "sessions refused", "count"),
    Column("moved", "sessions moved", "count"),
    Column("pause_us", "longest pause of a moved session", "us"),
    Column("actions", "actions", "count"),
    Column("actions_meanwhile", "actions while measured", "count"),
    Column("settled_s", "settled after", "s"),
    Column("server_cpu_share", "server's CPU", "share"),
    Column("client_cpu_share", "client's CPU", "share"),
    Column("limits", "named as limit"),
    Column("decisions", "lines logged", "lines"),
)


@dataclass(frozen=True)
class Timing:
    measure_s: float
    settle_limit_s: float


def measure_level(trial: Trial, sessions: int, timing: Timing) -> Measures:
    added = trial.have_sessions(sessions, _SESSIONS_PER_S)
    meanwhile = trial.events()  # while sessions were added
    settled = settle(trial.events, _QUIET_S, timing.settle_limit_s)
    trial.interval()
    before = trial.processor_times()
    time.sleep(timing.measure_s)
    after = trial.processor_times()
    figures, state, late = trial.interval(), trial.state(), trial.events()
    events = [*meanwhile, *settled.events, *late]
    latency = figures["latency_us"]
    return {
        "ops_per_s": figures["operations_per_s"],
        "bytes_per_s": figures["bytes_per_s"],
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "max_us": latency["max"],
        "errors": figures["errors"],
        "reconnects": figures["lost"],  # including connections that were made again
        "connections": state.connections,
        "mapped_bytes": state.mapped_bytes,
        "buffers_first": trial.first.buffers,
        "buffers": state.buffers,
        "credits_first": trial.first.credits,
        "credits": state.credits,
        "slots_set": len(trial.more_slots),
        "refused": added["refused"],
        "moved": figures["moved"],
        "pause_us": figures["pause_us"],
        "actions": _actions(events),
        "actions_meanwhile": _actions(late),
        "settled_s": settled.took_s,
        "server_cpu_share": (after.server_s - before.server_s) / (after.at_s - before.at_s),
        "client_cpu_share": (after.client_s - before.client_s) / (after.at_s - before.at_s),
        "limits": _limits(events),
        "decisions": "\n".join(f"{event['after_s']:6.2f} s  {event['line']}" for event in events),
    }


def _limits(events: list[Event]) -> str:
    """Returns each limit that was named, in the order of its first time."""
    named = (event["data"]["limit"] for event in events if event["kind"] == "why")
    return ", ".join(dict.fromkeys(named)) or Limit.NOTHING.value


def _actions(events: list[Event]) -> int:
    """Counts what was done, not what was said about it."""
    return sum(event["kind"] in ("done", "undo", "shrink", "refuse", "admit") for event in events)
