# SPDX-License-Identifier: BSD-2-Clause
"""Says whether locked memory moved, and pinned memory did not."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.lab.experiment.moving import LOCKED, PINNED, PLAIN
from livedma.lab.experiment.quantities import Value, quantity
from livedma.lab.experiment.runs import Runs
from livedma.wire.words import amount

__all__ = ["answer"]


def answer(runs: Runs) -> list[str]:
    events = runs.levels("event")
    if not events:
        return ["Nothing could be measured: no way to move memory works here."]
    return [
        _headline(runs, events),
        *(_told(runs, event) for event in events),
        *_kept(runs),
        *_content(runs),
    ]


def _most(runs: Runs, way: str, **levels: Value) -> int:
    return int(max(runs.values("moved", way=way, **levels), default=0))


def _headline(runs: Runs, events: list[Value]) -> str:
    moved = [str(event) for event in events if _most(runs, LOCKED, event=event)]
    pinned = _most(runs, PINNED)
    stayed = (
        "no pinned page moved in any run"
        if not pinned
        else f"but pinned pages moved, too ({quantity(pinned, 'count')} in one run)"
    )
    if not moved:
        return f"No locked page moved in {_list(events)}; {stayed}: that proves nothing."
    worst = max(moved, key=lambda event: _most(runs, LOCKED, event=event))
    share = max(runs.values("moved_share", way=LOCKED, event=worst))
    verdict = "mlock is not enough for DMA: locked" if not pinned else "Locked"
    return (
        f"{verdict} pages get other physical frames in {_list(moved)} (up to "
        f"{quantity(share, 'share')} of them in one run); {stayed}."
    )


def _list(words: list[Value] | list[str]) -> str:
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def _told(runs: Runs, event: Value) -> str:
    here = runs.where(event=event)
    parts = []
    for way in (PLAIN, LOCKED, PINNED):
        spread = here.spread("moved", way=way)
        if spread is None:
            continue
        low, median, high = (quantity(v, "count") for v in (spread.low, spread.median, spread.high))
        between = "" if low == high else f" ({low} to {high})"
        parts.append(f"{way} {median}{between}")
    pages = quantity(here.median("pages"), "count")
    outcomes = sorted(
        {
            f"{row.point['way']} {row.measures['outcome']}"
            for row in here
            if str(row.measures.get("outcome", "")).startswith("refused")
        }
    )
    why = f"; the kernel's answer: {', '.join(outcomes)}" if outcomes else ""
    return f"{str(event).capitalize()}, pages of {pages} that moved: {', '.join(parts)}{why}."


def _kept(runs: Runs) -> Iterator[str]:
    """Says that each range was what its name says."""
    locked = runs.median("locked_bytes", way=LOCKED)
    pinned = runs.median("pinned_bytes", way=PINNED)
    lost = int(sum(runs.values("lost")))
    if locked is not None and pinned is not None:
        yield (
            f"The process had {quantity(locked, 'bytes')} locked (VmLck) and "
            f"{quantity(pinned, 'bytes')} pinned (VmPin) meanwhile; afterwards "
            f"{amount(lost, 'page')} of all three were not in memory."
        )


def _content(runs: Runs) -> Iterator[str]:
    changed = int(sum(runs.values("changed")))
    yield (
        f"{amount(changed, 'page')} had other content afterwards"
        + (
            ": the process does not see that its memory moved; a device would."
            if not changed
            else "."
        )
    )
