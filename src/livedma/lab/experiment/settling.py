# SPDX-License-Identifier: BSD-2-Clause
"""Waits until a controller has stopped acting: then its final state can be measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Event", "Settled", "settle"]

Event = Mapping[str, Any]
"""As the control socket tells it."""

# Events of these kinds have changed something, or announce it.
_ACTING = ("plan", "done", "failed", "check", "undo", "shrink", "refuse", "admit")


@dataclass(frozen=True)
class Settled:
    took_s: float
    is_quiet: bool  #: it had stopped; else time was up
    events: list[Event]  #: events that came meanwhile


def settle(
    ask: Callable[[float], list[Event]],
    quiet_s: float,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Settled:
    """Waits until nothing was done for quiet_s and what was done is checked, or limit_s are over.

    ask: waits so long for new events.
    """
    began_s = last_s = clock()
    seen: list[Event] = []
    unchecked: set[int | None] = set()  # connections
    while True:
        now_s = clock()
        if now_s - last_s >= quiet_s and not unchecked:
            return Settled(now_s - began_s, True, seen)
        if now_s - began_s >= limit_s:
            return Settled(now_s - began_s, False, seen)
        quiet_at_s = limit_s if unchecked else quiet_s - (now_s - last_s)
        new = ask(min(quiet_at_s, limit_s - (now_s - began_s)))
        seen += new
        for event in new:
            if event["kind"] == "done":
                unchecked.add(event["connection"])
            elif event["kind"] in ("check", "undo"):
                unchecked.discard(event["connection"])
        if any(event["kind"] in _ACTING for event in new):
            last_s = clock()
