# SPDX-License-Identifier: BSD-2-Clause
"""Events tell what the controller saw, decided and did, each with one line for people."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

__all__ = ["Event", "Events", "Kind"]

_log = logging.getLogger("livedma.decisions")

Kind = Literal[
    "degraded",  # a connection got worse; why follows
    "why",
    "forecast",  # buffers will run out soon; a plan follows, or why there is none
    "plan",
    "done",  # the plan was carried out
    "failed",  # the plan was not carried out; the text says which part of it stays
    "check",  # whether the plan helped
    "undo",  # the plan did not help and was taken back
    "shrink",  # memory that is no longer needed was given back
    "refuse",  # new sessions are refused from now on: a connection's, or all
    "admit",  # new sessions are admitted again
    "recovered",
    "policy",  # the policy was changed
    "hand",  # a person did something, not the policy
    "source",  # the source of snapshots has changed
    "reload",  # the configuration was read again
]
# Trouble is logged as a warning, all else as information.
_LEVELS: Mapping[Kind, int] = dict.fromkeys(
    ("degraded", "why", "failed", "undo", "refuse"), logging.WARNING
)
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Event:
    """Tells one thing that happened. `number` counts up from 1, so that a reader can ask for what
    is new. `dry` marks what a dry run only told.
    """

    number: int
    at_s: float  #: monotonic
    wall_s: float
    kind: Kind
    connection: int | None
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    dry: bool = False

    @property
    def line(self) -> str:
        successor = self.data.get("successor") if self.kind == "done" else None
        where = "" if successor is None else f" -> {successor}"
        where = "" if self.connection is None else f"connection {self.connection}{where}: "
        return f"{self.kind:9} {where}{self.text}{' (dry run)' if self.dry else ''}"

    def as_json(self) -> dict[str, Any]:
        """Adds the line, for views that only show it."""
        return {**asdict(self), "line": self.line}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        return cls(**{name: value for name, value in found.items() if name != "line"})


class Events:
    """Keeps the last events, in order. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._kept: deque[Event] = deque(maxlen=_KEPT)
        self._next = 1
        self._counts: Counter[Kind] = Counter()
        self.listeners: list[Callable[[Event], None]] = []

    def tell(
        self,
        kind: Kind,
        text: str,
        *,
        connection: int | None = None,
        data: Mapping[str, Any] | None = None,
        dry: bool = False,
    ) -> Event:
        with self._lock:
            event = Event(
                self._next,
                time.monotonic(),
                time.time(),
                kind,
                connection,
                text,
                dict(data or {}),
                dry,
            )
            self._next += 1
            self._counts[kind] += 1
            self._kept.append(event)
            self._lock.notify_all()
        level = _LEVELS.get(kind, logging.INFO)
        _log.log(level, "%s", event.line, extra={"event": event})
        for listener in self.listeners:
            listener(event)
        return event

    @property
    def last(self) -> int:
        """Returns the number of the last event; 0: there was none."""
        with self._lock:
            return self._next - 1

    def counts(self) -> dict[Kind, int]:
        """Returns how many events of each kind there were, including those no longer kept."""
        with self._lock:
            return {kind: self._counts[kind] for kind in get_args(Kind)}

    def after(self, number: int = 0, wait_s: float = 0.0) -> list[Event]:
        """Returns the kept events with a higher number. Waits up to `wait_s` for one."""
        with self._lock:
            if wait_s > 0:
                self._lock.wait_for(lambda: self._next - 1 > number, wait_s)
            return [event for event in self._kept if event.number > number]
