# SPDX-License-Identifier: BSD-2-Clause
"""Says how a ramp went: when it got worse and why, what was done about it, and what that gave."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from livedma.lab.ramp import Run

__all__ = ["Outcome", "Trouble"]

_FULL_LOAD_S = 4.0  # at the end, over which figures are compared


@dataclass(frozen=True, slots=True)
class Trouble:
    """Describes a time when it got worse. relief_s: from the known reason until a plan was carried
    out."""

    at_s: float
    sessions: int
    why: str
    limit: str | None
    relief_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds figures of the load: bandwidth, latency (the median of the seconds) and sessions are
    those of the last seconds. done: how often each action of a plan was carried out, by its name.
    """

    policy: str
    sessions: int
    bytes_per_s: float
    operations_per_s: float
    p50_us: float
    p99_us: float
    over_s: float
    trouble: Trouble | None
    done: dict[str, int]
    undone: int
    mapped_first_bytes: int
    mapped_bytes: int
    connections: int
    reconnects: int
    refused: int
    errors: int
    source: str
    others_share: float | None

    @classmethod
    def of(cls, run: Run) -> Outcome:
        end_s = run.intervals[-1]["at_s"]
        last = [one for one in run.intervals if one["at_s"] > end_s - _FULL_LOAD_S]
        total = run.total
        return cls(
            run.policy,
            last[-1]["sessions"],
            fmean(one["bytes_per_s"] for one in last),
            fmean(one["operations_per_s"] for one in last),
            median(one["latency_us"]["p50"] for one in last),
            median(one["latency_us"]["p99"] for one in last),
            min(_FULL_LOAD_S, end_s),
            _trouble(run),
            _done(run),
            sum(one["kind"] == "undo" for one in run.events),
            run.moments[0].mapped_bytes,
            run.moments[-1].mapped_bytes,
            len(run.moments[-1].mapped),
            total.get("reconnects", 0),
            len(total.get("refused", ())),
            sum(one["errors"] for one in run.intervals) + len(total.get("lost", ())),
            run.moments[-1].source,
            run.others_share,
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _trouble(run: Run) -> Trouble | None:
    """Returns the last trouble before something was done about it; the first if nothing was."""
    relief = next((one for one in run.events if one["kind"] == "done"), None)
    before = run.events if relief is None else run.events[: run.events.index(relief)]
    degraded = [one for one in before if one["kind"] == "degraded"]
    if not degraded:
        return None
    first = degraded[0] if relief is None else degraded[-1]
    reasons = [one for one in before if one["kind"] == "why" and one["number"] > first["number"]]
    reason = reasons[0 if relief is None else -1] if reasons else None
    at_s = first["at_s"]
    meanwhile = [one for one in run.intervals if one["at_s"] >= at_s]
    return Trouble(
        at_s,
        (meanwhile or run.intervals[-1:])[0]["sessions"],
        "" if reason is None else reason["text"],
        None if reason is None else reason["data"].get("limit"),
        None if relief is None else relief["at_s"] - (reason or first)["at_s"],
    )


def _done(run: Run) -> dict[str, int]:
    """Counts the actions of plans that a `done` follows."""
    found: Counter[str] = Counter()
    planned: dict[int | None, list[str]] = {}
    for event in run.events:
        where = event["connection"]
        if event["kind"] == "plan" and not event["dry"]:
            planned[where] = [one["action"] for one in event["data"].get("actions", ())]
        elif event["kind"] == "done":
            found.update(planned.pop(where, ()))
        elif event["kind"] == "failed":
            planned.pop(where, None)
    return dict(found)
