# SPDX-License-Identifier: BSD-2-Clause
"""Holds the results of a measurement."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from typing import Any

from livedma._native.latency import Latency
from livedma._native.load import Counters, Figures, SessionFigures
from livedma.nfs.numbers import Op, Status

__all__ = ["PERCENTILES", "Interval", "Result", "SessionResult"]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
_S = 1e-9


def _operations(counters: Counters) -> int:
    return counters.reads + counters.writes


def _bytes(counters: Counters) -> int:
    return counters.read_bytes + counters.written_bytes


def _spread(times_ns: list[int]) -> dict[str, float] | None:
    if not times_ns:
        return None
    return {"median": statistics.median(times_ns) / 1000, "max": max(times_ns) / 1000}


def percentiles_us(latency: Latency) -> dict[str, float]:
    """Returns microseconds by name; max is exact."""
    found = {name: latency.quantile_ns(part) / 1000 for name, part in PERCENTILES.items()}
    return {**found, "max": latency.max_ns / 1000}


@dataclass(frozen=True, slots=True)
class Interval:
    """Holds the figures of a part of a run, which ends `at_s` after the begin. away_s: how long the
    server had not answered by then, if connections with it were lost."""

    at_s: float
    length_s: float
    sessions: int
    operations: int
    bytes: int
    errors: int
    waited: int
    latency: Latency
    away_s: float = 0.0

    @classmethod
    def between(cls, before: Figures, after: Figures, away_s: float = 0.0) -> Interval:
        old, new = before.counters, after.counters
        return cls(
            (after.now_ns - after.began_ns) * _S,
            max((after.now_ns - before.now_ns) * _S, 1e-9),
            after.running,
            _operations(new) - _operations(old),
            _bytes(new) - _bytes(old),
            new.errors - old.errors,
            new.waited - old.waited,
            after.latency,
            away_s,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "at_s": round(self.at_s, 3),
            "sessions": self.sessions,
            "operations_per_s": round(self.operations / self.length_s, 1),
            "bytes_per_s": round(self.bytes / self.length_s),
            "latency_us": percentiles_us(self.latency),
            "errors": self.errors,
            "waited_for_credits": self.waited,
            **({"away_s": round(self.away_s, 3)} if self.away_s else {}),
        }


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Holds the figures of one session, for as long as it ran."""

    number: int
    id: bytes
    figures: SessionFigures
    seconds: float

    @classmethod
    def of(
        cls, number: int, session_id: bytes, figures: SessionFigures, end_ns: int
    ) -> SessionResult:
        seconds = (end_ns - figures.began_ns) * _S if figures.began_ns else 0.0
        return cls(number, session_id, figures, seconds)

    @property
    def operations(self) -> int:
        return _operations(self.figures.counters)

    @property
    def errors(self) -> int:
        return self.figures.counters.errors

    @property
    def latency(self) -> Latency:
        return self.figures.latency

    @property
    def words(self) -> str:
        """Returns the first error."""
        return named(self.figures.words)

    def as_json(self) -> dict[str, Any]:
        """Returns the figures as JSON has them. filled: WRITEs before it began, which no other
        figure counts. longest_gap: the longest time without a reply, except around moves: that is
        the pause."""
        counters = self.figures.counters
        return {
            "session": self.number,
            "id": self.id.hex(),
            "operations": self.operations,
            "reads": counters.reads,
            "writes": counters.writes,
            "bytes": _bytes(counters),
            "bytes_read": counters.read_bytes,
            "bytes_written": counters.written_bytes,
            "moves": self.figures.moves,
            **({"pause_us": self.figures.pause_ns / 1000} if self.figures.moves else {}),
            "longest_gap_us": self.figures.gap_ns / 1000,
            "filled": counters.fills,
            "bytes_filled": counters.filled_bytes,
            "operations_per_s": round(self.operations_per_s, 1),
            "latency_us": percentiles_us(self.latency),
            "errors": self.errors,
            **({"first_error": self.words} if self.words else {}),
        }

    @property
    def operations_per_s(self) -> float:
        return self.operations / self.seconds if self.seconds > 0 else 0.0


def named(words: str) -> str:
    """Puts names of operations and statuses in place of their numbers."""
    words = re.sub(r"operation (\d+)", lambda m: _name(Op, int(m[1])), words)
    return re.sub(r"status (\d+)$", lambda m: f"NFS4ERR_{_name(Status, int(m[1]))}", words)


def _name(kind: type[Op] | type[Status], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


@dataclass(frozen=True, slots=True)
class Result:
    """Holds the figures of a whole run. cpu_s: of this process meanwhile; refused: sessions that
    could not be made; connections: how many were opened, and reconnects: how many of them replaced
    a lost one. gaps_s: how long the server did not answer, each time that connections were lost.
    ended: why the run ended early, or without the server."""

    seconds: float
    counters: Counters
    sessions: tuple[SessionResult, ...]
    statuses: dict[str, int]
    cpu_s: float
    unanswered: int
    refused: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  #: connections, and why
    latency: Latency = field(default_factory=Latency)
    connections: int = 1
    reconnects: int = 0
    gaps_s: tuple[float, ...] = ()
    ended: str = ""

    @property
    def operations(self) -> int:
        return _operations(self.counters)

    @property
    def bytes(self) -> int:
        return _bytes(self.counters)

    @property
    def is_clean(self) -> bool:
        has_failed = self.counters.errors or self.refused or self.lost or self.unanswered
        return not has_failed and not self.ended and self.operations > 0

    @property
    def cpu_us_per_operation(self) -> float:
        return self.cpu_s * 1e6 / self.operations if self.operations else 0.0

    @property
    def moved(self) -> list[SessionResult]:
        """Returns the sessions that changed their connection."""
        return [one for one in self.sessions if one.figures.moves]

    @property
    def late(self) -> int:
        """Returns how many sessions had not begun when time was up."""
        return sum(one.seconds <= 0 for one in self.sessions)

    @property
    def slowest(self) -> SessionResult | None:
        ran = [one for one in self.sessions if one.seconds > 0]
        return min(ran, key=lambda one: one.operations_per_s, default=None)

    @property
    def fastest(self) -> SessionResult | None:
        ran = [one for one in self.sessions if one.seconds > 0]
        return max(ran, key=lambda one: one.operations_per_s, default=None)

    def as_json(self) -> dict[str, Any]:
        counters = self.counters
        return {
            "seconds": round(self.seconds, 3),
            "operations": self.operations,
            "reads": counters.reads,
            "writes": counters.writes,
            "bytes": self.bytes,
            "operations_per_s": round(self.operations / self.seconds, 1),
            "bytes_per_s": round(self.bytes / self.seconds),
            "latency_us": percentiles_us(self.latency),
            "errors": counters.errors,
            "wrong_data": counters.wrong,
            "statuses": self.statuses,
            "delays": counters.delays,
            "unanswered": self.unanswered,
            "waited_for_credits": counters.waited,
            "waited_for_credits_us": round(counters.waited_ns / max(counters.waited, 1) / 1000, 1),
            "cpu_us_per_operation": round(self.cpu_us_per_operation, 3),
            "not_begun": self.late,
            "refused": list(self.refused),
            "lost": list(self.lost),
            "connections": self.connections,
            "reconnects": self.reconnects,
            "gaps_s": [round(one, 3) for one in self.gaps_s],
            "ended": self.ended or None,
            "repeated": counters.repeats,
            "moved": {
                "sessions": len(self.moved),
                "pause_us": _spread([one.figures.pause_ns for one in self.moved]),
                "longest_gap_us": _spread([one.figures.gap_ns for one in self.moved]),
            },
            "sessions": [one.as_json() for one in self.sessions],
        }
