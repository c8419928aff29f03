# SPDX-License-Identifier: BSD-2-Clause
"""Keeps what the terminal shows of a server: the last frame, the minute before it, and decisions.

While it is paused the picture does not change; what comes meanwhile is kept for later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from livedma.control.events import Event
from livedma.control.show.frame import Frame
from livedma.monitor.snapshot import Session, Snapshot
from livedma.ui.feeds import Item, Lost

__all__ = ["MINUTE_S", "Model", "Moment", "buckets"]

MINUTE_S = 60.0
_MOMENTS = 128  # in a minute, and a few to spare
_EVENTS = 1000
_KEPT_PAUSED = 4 * _MOMENTS
_QUIET_S = 3.0  # without a frame for so long, something is wrong


@dataclass(frozen=True, slots=True)
class Moment:
    """Holds a session in one frame. None: no call gave a value."""

    at_s: float
    operations_per_s: float
    bytes_per_s: float
    p99_ns: float | None
    wait_ns: float | None


class Model:
    """Keeps what is shown. clock: monotonic, and wall: of this host; both say how long ago
    something was."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self.wall = clock, wall
        self.frame: Frame | None = None
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        self.lost: Lost | None = None
        self.lost_since_s = 0.0  #: by the clock on the wall of this host, as is
        self.paused_since_s: float | None = None
        self._heard_s = clock()
        self._past: dict[str, deque[Moment]] = {}
        self._later: deque[Item] = deque(maxlen=_KEPT_PAUSED)

    def take(self, item: Item) -> None:
        """Takes an item of a feed."""
        if isinstance(item, Frame):
            self._heard_s = self._clock()
        if self.paused_since_s is not None:
            self._later.append(item)
        else:
            self._apply(item)

    def pause(self) -> None:
        """Stops the picture, or lets it go on."""
        if self.paused_since_s is None:
            self.paused_since_s = self.wall()
            return
        self.paused_since_s = None
        while self._later:
            self._apply(self._later.popleft())

    @property
    def quiet_s(self) -> float | None:
        """Returns how long no frame has come, if that is longer than it should be."""
        quiet_s = self._clock() - self._heard_s
        return quiet_s if quiet_s >= _QUIET_S else None

    @property
    def snapshot(self) -> Snapshot | None:
        return None if self.frame is None else self.frame.snapshot

    def past(self, session: str) -> Sequence[Moment]:
        """Returns the moments of the last minute, as far as they were seen."""
        return self._past.get(session, ())

    def _apply(self, item: Item) -> None:
        if isinstance(item, Lost):
            if self.lost is None:
                self.lost_since_s = self.wall()
            self.lost = item
        elif isinstance(item, Event):
            if self.events and item.number <= self.events[-1].number:
                self.events.clear()  # they are another server's, which counts from the start
            self.events.append(item)
        else:
            self.lost = None
            if self.frame is not None and self.frame.started_s != item.started_s:
                self._past.clear()
            self.frame = item
            self._remember(item.snapshot)

    def _remember(self, snapshot: Snapshot) -> None:
        at_s = snapshot.at_s
        for one in snapshot.sessions:
            past = self._past.get(one.id)
            if past is None:
                past = self._past[one.id] = deque(maxlen=_MOMENTS)
            past.append(_moment(snapshot, one))
        if len(self._past) > len(snapshot.sessions):
            self._past = {
                name: past for name, past in self._past.items() if at_s - past[-1].at_s <= MINUTE_S
            }


def _moment(snapshot: Snapshot, session: Session) -> Moment:
    return Moment(
        snapshot.at_s,
        snapshot.per_s(session.operations),
        snapshot.per_s(session.bytes),
        session.latency.p99_ns if session.latency.count else None,
        session.memory_wait_ns,
    )


def buckets(
    past: Sequence[Moment], now_s: float, cells: int, figure: Callable[[Moment], float | None]
) -> list[float | None]:
    """Returns the mean of each of so many equal parts of the minute before now. Their bounds stand
    still, so that the picture moves on without a shimmer.
    """
    sums: list[float] = [0.0] * cells
    counts = [0] * cells
    step_s = MINUTE_S / cells
    last = int(now_s / step_s)
    for moment in past:
        value = figure(moment)
        index = cells - 1 - (last - int(moment.at_s / step_s))
        if value is not None and 0 <= index < cells:
            sums[index] += value
            counts[index] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]
