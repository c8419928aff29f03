# SPDX-License-Identifier: BSD-2-Clause
"""Finds what limits each connection, snapshot by snapshot: pure, without a clock or I/O.

A finding counts when several snapshots in a row have made it, so a single burst changes nothing. A
limit is taken back only when it has been gone for a while.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from livedma.control.diagnose.evidence import evidence_of, took
from livedma.control.diagnose.figures import Figures, History
from livedma.control.diagnose.judgement import Finding, Seen, Stages, judge
from livedma.control.diagnose.limits import Diagnosis, Limit, Objectives
from livedma.control.diagnose.usual import UsualLatency
from livedma.monitor.snapshot import Connection, Session, Snapshot

__all__ = ["Diagnostician"]

T = TypeVar("T")

_ABSURD_S = 10.0  # a longer interval says nothing of the present
_SURE_S = 0.15  # of equal findings in a row, at least two
_GONE_S = 0.35
_RARE_S = 3.0  # instead of _GONE_S for losses, which come one by one


class Diagnostician:
    """Diagnoses the connections of a server. `see` takes each snapshot, in order."""

    def __init__(self, objectives: Objectives | None = None) -> None:
        self.objectives = objectives or Objectives()
        self._cases: dict[int, _Case] = {}

    def see(self, snapshot: Snapshot) -> tuple[Diagnosis, ...]:
        """Returns a diagnosis of each connection in the snapshot. A snapshot with an absurd
        interval changes nothing.
        """
        if not 0 < snapshot.interval_s < _ABSURD_S:
            known = (self._cases.get(one.number) for one in snapshot.connections)
            return tuple(case.diagnosis for case in known if case and case.diagnosis)
        sessions = _by_connection(snapshot)
        cases = {one.number: self._cases.get(one.number) or _Case() for one in snapshot.connections}
        self._cases = cases
        return tuple(
            cases[one.number].see(one, sessions[one.number], snapshot, self.objectives)
            for one in snapshot.connections
        )


def _by_connection(snapshot: Snapshot) -> Mapping[int, list[Session]]:
    found: defaultdict[int, list[Session]] = defaultdict(list)
    for session in snapshot.sessions:
        for number in session.connections:
            found[number].append(session)
    return found


class _Held(Generic[T]):
    """Holds a value until another one has been found often enough in a row."""

    def __init__(self, value: T) -> None:
        self.value = self._other = value
        self._times, self._for_s = 0, 0.0

    def find(self, value: T, interval_s: float, sure_s: float) -> bool:
        """Takes note of a value that was found. Returns whether it is the held value now."""
        if value != self._other:
            self._other, self._times, self._for_s = value, 0, 0.0
        if value == self.value:
            return True
        self._times += 1
        self._for_s += interval_s
        if self._times >= 2 and self._for_s >= sure_s:
            self.value = value
        return value == self.value


class _Case:
    """Diagnoses one connection."""

    def __init__(self) -> None:
        self._history = History()
        self._stages = Stages()
        self._limit = _Held(Limit.NOTHING)
        self._slows = _Held(False)
        self._said = self._last_slow = Finding(Limit.NOTHING, False, "it was seen only once")
        self._least_latency_s = math.inf
        self._best_bytes_per_s = 0.0
        self._usual = UsualLatency()
        self.diagnosis: Diagnosis | None = None

    def see(
        self,
        connection: Connection,
        sessions: list[Session],
        snapshot: Snapshot,
        objectives: Objectives,
    ) -> Diagnosis:
        figures, lately = self._history.add(connection, sessions, snapshot)
        self._stages.observe(figures)
        if figures.operations_per_s:
            self._least_latency_s = min(self._least_latency_s, figures.latency_s)
            self._best_bytes_per_s = max(self._best_bytes_per_s, figures.bytes_per_s)
        found = judge(Seen(figures, lately, self._stages))
        if found is not None:
            self._find(_against(objectives, found, figures), snapshot.interval_s)
        if figures.operations_per_s:
            is_slow = self._slows.value or (found is not None and found.slows)
            self._usual.see(figures.p99_s, snapshot.interval_s, is_slow=is_slow)
        self.diagnosis = Diagnosis(
            connection.number,
            snapshot.at_s,
            self._slows.value,
            self._said.limit,
            self._sentence(),
            self._evidence(figures, objectives),
        )
        return self.diagnosis

    def _find(self, found: Finding, seconds: float) -> None:
        gone_s = _RARE_S if self._limit.value is Limit.NETWORK else _GONE_S
        if self._limit.find(
            found.limit, seconds, gone_s if found.limit is Limit.NOTHING else _SURE_S
        ):
            self._said = found
        self._slows.find(found.slows, seconds, _SURE_S if found.slows else gone_s)
        if found.slows:
            self._last_slow = found

    def _sentence(self) -> str:
        """Returns the diagnosis in words. Limits may have slowed the connection in turn, none for
        long enough to be named.
        """
        if not self._slows.value or self._said.slows or self._said.limit is not Limit.NOTHING:
            return self._said.sentence
        return f"it is slow, and what limits it changes: {self._last_slow.sentence}"

    def _evidence(self, figures: Figures, objectives: Objectives) -> dict[str, float]:
        evidence = evidence_of(figures)
        if self._usual.p99_s is not None:
            # If the store is slower now than usual, that is not the connection's doing.
            evidence["usual_p99_ms"] = max(self._usual.p99_s, figures.store.time_s) * 1e3
        if objectives.p99_ns is not None:
            evidence["wanted_p99_ms"] = objectives.p99_ns / 1e6
        if figures.operations_per_s:
            evidence["least_latency_ms"] = self._least_latency_s * 1e3
            evidence["best_bytes_per_s"] = self._best_bytes_per_s
        return evidence


def _against(objectives: Objectives, found: Finding, figures: Figures) -> Finding:
    """Weighs a finding against what users want. What is fast enough for them is not slow, and what
    is not fast enough is slow.
    """
    wanted_ns = objectives.p99_ns
    if wanted_ns is None or not figures.operations_per_s:
        return found
    is_met = figures.p99_s * 1e9 <= wanted_ns
    if is_met:
        # Calls that wait at the client for a credit or a slot are slower than the server can see.
        hidden = found.limit in (Limit.CREDITS, Limit.SLOTS) or figures.has_all_credits_used
        return replace(found, slows=found.slows and hidden)
    missed = f"99 % of the calls take up to {took(figures.p99_s)}, not {took(wanted_ns / 1e9)}"
    if found.limit is not Limit.NOTHING:
        return replace(found, slows=True, sentence=f"{found.sentence}; {missed}")
    if 2 * figures.store.inside >= figures.in_progress > 0:
        sentence = (
            f"an access takes {took(figures.store.time_s)} in the store, and waits for nothing"
        )
        return Finding(Limit.STORAGE, True, f"{sentence}; {missed}")
    return Finding(Limit.NOTHING, True, f"{missed}, though nothing has run out")
