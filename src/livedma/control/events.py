"""What the controller saw, decided and did: an event each, and one line for people."""

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
    "plan",
    "done",  # the plan was carried out
    "failed",  # or not, in whole or in part: what was kept is said
    "check",  # whether it helped
    "undo",  # it did not
    "shrink",  # demand is gone
    "refuse",  # new sessions, from now on
    "admit",  # them again
    "recovered",
    "policy",  # was changed
    "hand",  # somebody did something, not the policy
    "source",  # what snapshots come from has changed
    "reload",  # the configuration was read again
]
# What somebody who only wants to hear of trouble hears of.
_LEVELS: Mapping[Kind, int] = dict.fromkeys(
    ("degraded", "why", "failed", "undo", "refuse"), logging.WARNING
)
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Event:
    """number: counts up from 1, for those who ask what is new. dry: it was only said, not done."""

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
        where = "" if self.connection is None else f"connection {self.connection}: "
        return f"{self.kind:9} {where}{self.text}{' (dry run)' if self.dry else ''}"

    def as_json(self) -> dict[str, Any]:
        """With its line, for those who only show it."""
        return {**asdict(self), "line": self.line}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        return cls(**{name: value for name, value in found.items() if name != "line"})


class Events:
    """The last of them, in order. Any thread may tell and ask."""

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
        """The number of the last one; 0: there was none."""
        with self._lock:
            return self._next - 1

    def counts(self) -> dict[Kind, int]:
        """How many there were of each kind, those that are not kept any more included."""
        with self._lock:
            return {kind: self._counts[kind] for kind in get_args(Kind)}

    def after(self, number: int = 0, wait_s: float = 0.0) -> list[Event]:
        """Those with a higher number; waits so long for one."""
        with self._lock:
            if wait_s > 0:
                self._lock.wait_for(lambda: self._next - 1 > number, wait_s)
            return [event for event in self._kept if event.number > number]
