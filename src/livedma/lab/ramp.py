# SPDX-License-Identifier: BSD-2-Clause
"""Lets sessions pile up on one connection under a policy, and collects all that is seen of it.

The store is slow, so that each read holds its DMA buffer for a while: the first quarter of the
window is soon too little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from livedma.errors import LabError
from livedma.lab.experiment.other_load import OtherLoad
from livedma.lab.performers import Server
from livedma.lab.stage import Stage
from livedma.memory import memlock
from livedma.monitor.snapshot import Snapshot
from livedma.privilege import CAP_IPC_LOCK, holds

__all__ = ["Moment", "Ramp", "Run", "perform"]

_LOOK_S = 0.2
_PINNED_MOST = 64 << 20  # by the server or the load, with several connections
_SOURCE_S = 10.0
_END_S = 60.0  # for the last replies, and for removing files and sessions
_FOREVER_S = 1e8
_BLOCKS = 16  # of a file: written before its session is measured
_TURNS = ("degraded", "recovered")


@dataclass(frozen=True, slots=True)
class Ramp:
    """Describes a ramp. seconds: the whole length; sessions come in during the first half."""

    seconds: float = 18.0
    sessions: int = 64
    depth: int = 3
    size: int = 64 << 10
    window_bytes: int = 16 << 20
    mapped_bytes: int = 4 << 20
    store_delay_ms: int = 40

    @classmethod
    def fitting(cls, seconds: float) -> Ramp:
        """Returns a ramp with smaller buffers if the user may not pin the usual ones."""
        allowed = memlock.limit()
        if allowed is None or allowed >= _PINNED_MOST or holds(CAP_IPC_LOCK):
            return cls(seconds)
        return cls(seconds, size=8 << 10, window_bytes=3584 << 10, mapped_bytes=896 << 10)

    @property
    def per_s(self) -> float:
        return self.sessions / (self.seconds / 2)

    def serve_options(self, policy: str) -> list[str]:
        options = {
            "window": self.window_bytes,
            "mapped": f"{self.mapped_bytes}/{self.window_bytes}",
            "buffer": self.size,
            "store-delay": f"{self.store_delay_ms}ms",
            "policy": policy,
            "ahead": "0s",  # to show how a limit is found; a forecast would act before there is one
        }
        return [f"--{name}={value}" for name, value in options.items()]

    def load_options(self, *, endless: bool = False) -> list[str]:
        options = {
            "sessions": self.sessions,
            "ramp": f"{self.per_s:g}",
            "depth": self.depth,
            "size": self.size,
            "file-size": _BLOCKS * self.size,
            "seconds": f"{_FOREVER_S if endless else self.seconds:g}",
            "seed": 1,
        }
        return [f"--{name}={value}" for name, value in options.items()]


@dataclass(frozen=True, slots=True)
class Moment:
    """Holds the server's state at a time of the run. degraded: the connections that are."""

    at_s: float
    source: str
    mapped: tuple[int, ...]  #: bytes of each connection, in the order in which they were made
    degraded: frozenset[int] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, began_s: float, degraded: frozenset[int]) -> Moment:
        there = sorted(snapshot.connections, key=lambda one: one.number)
        return cls(
            snapshot.at_s - began_s,
            snapshot.source,
            tuple(one.inside.mapped_bytes for one in there if one.inside is not None),
            degraded & {one.number for one in there},
        )

    @property
    def mapped_bytes(self) -> int:
        return sum(self.mapped)


@dataclass(slots=True)
class Run:
    """Records a ramp under a policy. Times are seconds after the load began, also in events
    (`at_s`)."""

    ramp: Ramp
    policy: str
    control: Path  #: the server's control socket
    source: str  #: of the first snapshots
    intervals: list[dict[str, Any]] = field(default_factory=list)  #: as `livedma load` prints them
    events: list[dict[str, Any]] = field(default_factory=list)  #: as the server tells them
    moments: list[Moment] = field(default_factory=list)
    total: dict[str, Any] = field(default_factory=dict)  #: what the load says at its end
    others_share: float | None = None  #: the part of all processors' time that other processes took

    def as_json(self) -> dict[str, Any]:
        moments = [{**asdict(one), "degraded": sorted(one.degraded)} for one in self.moments]
        return {
            "policy": self.policy,
            "source": self.source,
            "ramp": asdict(self.ramp),
            "intervals": self.intervals,
            "events": self.events,
            "moments": moments,
            "total": self.total,
            "others_share": self.others_share,
        }


def perform(
    stage: Stage, ramp: Ramp, policy: str, look: Callable[[Run], None], *, endless: bool = False
) -> Run:
    """Runs a server of its own, and the ramp. look: is called at once, then a few times a second.

    endless: the load never ends by itself, and server and load stay with the stage; this returns
    when the ramp's time is over.
    """
    others = OtherLoad()
    server = stage.serve(*ramp.serve_options(policy))
    run = Run(ramp, policy, server.control_path, _source(server))
    look(run)
    load = stage.load(*ramp.load_options(endless=endless))
    number, told = 0, list[dict[str, Any]]()
    while not load.is_over:
        # Waiting for decisions sets the pace.
        events = server.ask("decisions", after=number, wait=_LOOK_S)["events"]
        number = events[-1]["number"] if events else number
        told += events
        if load.began_s is None:
            continue
        run.events += [{**one, "at_s": one["at_s"] - load.began_s} for one in told]
        told.clear()
        snapshot = Snapshot.from_json(server.ask("snapshot", sessions=False))
        moment = Moment.of(snapshot, load.began_s, _degraded(run.events))
        # Before and after that, the load has no connection, or not all of them.
        if moment.mapped and moment.at_s <= ramp.seconds:
            run.moments.append(moment)
        run.intervals = load.intervals
        look(run)
        if endless and moment.at_s >= ramp.seconds:
            return run
    run.intervals = load.intervals
    run.total = load.result(_END_S)
    load.close()
    server.close()
    run.others_share = others.share()
    if not run.intervals or not run.moments:
        raise LabError("the load ended before anything could be seen of it")
    look(run)
    return run


def _source(server: Server) -> str:
    """Returns the source of snapshots, once BPF is there or cannot be had."""
    end_s = time.monotonic() + _SOURCE_S
    kinds: list[str] = []
    while "source" not in kinds and time.monotonic() < end_s:
        events = server.ask("decisions", after=len(kinds), wait=_LOOK_S)["events"]
        kinds += [one["kind"] for one in events]
    return str(server.ask("snapshot", sessions=False)["source"])


def _degraded(events: list[dict[str, Any]]) -> frozenset[int]:
    """Returns the connections that have not recovered."""
    last = {one["connection"]: one["kind"] for one in events if one["kind"] in _TURNS}
    return frozenset(number for number, kind in last.items() if kind == "degraded")
