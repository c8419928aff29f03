# SPDX-License-Identifier: BSD-2-Clause
"""Makes one snapshot from two sources: the wire, watched by BPF, and the server itself.

The server is always there. BPF may not be allowed, or another process may detach it. Then the
observer uses the server's own figures alone, tells so, and tries BPF again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from livedma.control.events import Events
from livedma.control.faults import described
from livedma.control.observe.merge import key_of, merged
from livedma.monitor.snapshot import Snapshot

__all__ = ["Inside", "Observer", "Outside"]

_LONGEST_S = 2.0  # of an interval; in a longer one this process was stopped, and rates mean nothing
_LOOK_S = 1.0  # between two checks that BPF is still attached
_AGAIN_S, _AGAIN_MOST_S = 5.0, 300.0
_CLOCK_S = 1.0  # the smallest jump of the wall clock that is told


class Inside(Protocol):
    def snapshot(self) -> Snapshot: ...


class Outside(Protocol):
    """Declares the part of `livedma.monitor.Monitor` that the observer uses."""

    @property
    def is_attached(self) -> bool: ...

    def learn(self, server: str, server_qpn: int, client: str, client_qpn: int) -> bool: ...

    def snapshot(self) -> Snapshot: ...

    def close(self) -> None: ...


class Observer:
    """Observes a server. `open_outside` makes the monitor and attaches it; None: the server is the
    only source.

    `budget_bytes` is the budget of all connections; it is copied into snapshots and may change.
    `opener` runs `open_outside`, by default in a thread of its own.
    """

    def __init__(
        self,
        inside: Inside,
        open_outside: Callable[[], Outside] | None,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
        *,
        budget_bytes: int | None = None,
        opener: Executor | None = None,
    ) -> None:
        self._inside = inside
        self.budget_bytes = budget_bytes
        self._open_outside = open_outside
        self._events = events
        self._clock = clock
        self._outside: Outside | None = None
        self._opening: Future[Outside] | None = None
        self._opener = opener or ThreadPoolExecutor(1, "livedma-monitor")
        self._looked_s = 0.0
        self._again_s, self._wait_s = 0.0, _AGAIN_S
        self._why_not = ""
        self._told: tuple[str, str] | None = None
        self._wall_offset_s: float | None = None

    def observe(self) -> Snapshot | None:
        inside = self._inside.snapshot()
        budget_bytes = self.budget_bytes
        if budget_bytes is not None:
            host = replace(inside.host, budget_bytes=budget_bytes)
            inside = replace(inside, host=host)
        outside = self._look_outside(inside)
        ret = inside if outside is None else merged(inside, outside)
        self._tell_source(ret)
        self._notice_clock(inside)
        if not 0 < inside.interval_s <= _LONGEST_S:
            if inside.interval_s > _LONGEST_S:
                text = f"nothing was seen for {inside.interval_s:.1f} s: that interval is left out"
                self._events.tell("source", text)
            return None
        return ret

    def close(self) -> None:
        self._opener.shutdown()
        self._take_opened()
        if self._outside is not None:
            self._outside.close()
            self._outside = None

    def _look_outside(self, inside: Snapshot) -> Snapshot | None:
        if self._outside is None and not self._open():
            return None
        assert self._outside is not None
        try:
            now_s = self._clock()
            if now_s - self._looked_s >= _LOOK_S:
                self._looked_s = now_s
                if not self._outside.is_attached:
                    self._lose("another program has detached its BPF programs")
                    return None
            seen = self._outside.snapshot()
            self._teach(inside, seen)
        except Exception as error:  # after any failure the server's own figures remain
            self._lose(described(error))
            return None
        return seen

    def _open(self) -> bool:
        """Opens the monitor in a thread: loading BPF programs is slow, and decisions must not wait
        for it. Returns whether the monitor is open now.
        """
        if self._opening is not None:
            return self._take_opened()
        if self._open_outside is not None and self._clock() >= self._again_s:
            self._opening = self._opener.submit(self._open_outside)
        return self._take_opened()

    def _take_opened(self) -> bool:
        if self._opening is None or not self._opening.done():
            return False
        opened, self._opening = self._opening, None
        try:
            self._outside = opened.result()
        except Exception as error:
            self._lose(described(error))
            return False
        self._looked_s = self._clock()
        self._wait_s = _AGAIN_S
        return True

    def _lose(self, reason: str) -> None:
        self._why_not = reason
        self._again_s = self._clock() + self._wait_s
        self._wait_s = min(2 * self._wait_s, _AGAIN_MOST_S)
        lost, self._outside = self._outside, None
        if lost is not None:
            lost.close()

    def _teach(self, inside: Snapshot, seen: Snapshot) -> None:
        """Tells the monitor of connections that were made before it was attached."""
        assert self._outside is not None
        known = {key_of(one) for one in seen.connections}
        for one in inside.connections:
            if not one.is_tcp and one.client_qpn and key_of(one) not in known:
                self._outside.learn(one.server, one.server_qpn, one.client, one.client_qpn)

    def _tell_source(self, snapshot: Snapshot) -> None:
        if self._open_outside is None:
            return  # only the server was asked for
        if self._opening is not None and self._told is None:
            return  # the first source is known once the monitor is open or has failed
        why_not = self._why_not if snapshot.source == "server" else ""
        if self._told == (snapshot.source, why_not):
            return
        self._told = (snapshot.source, why_not)
        text = "BPF on the wire, and the server itself"
        if snapshot.source == "server":
            text = f"the server itself, without BPF on the wire: {why_not}"
        self._events.tell("source", f"snapshots come from {text}", data={"source": snapshot.source})

    def _notice_clock(self, snapshot: Snapshot) -> None:
        offset_s = snapshot.wall_s - snapshot.at_s
        before_s, self._wall_offset_s = self._wall_offset_s, offset_s
        if before_s is not None and abs(offset_s - before_s) > _CLOCK_S:
            text = (
                f"the clock was set by {offset_s - before_s:+.0f} s: only the monotonic one counts"
            )
            self._events.tell("source", text)
