# SPDX-License-Identifier: BSD-2-Clause
"""Moves clients that cannot be asked: their connection ends between two calls, and they come back
to a larger one.

No call is lost: those under way are answered first, those that come meanwhile are dropped and were
not executed, and the client repeats what has no reply with its slot and sequence.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.control.events import Events
from livedma.control.faults import described
from livedma.control.words import duration
from livedma.errors import LivedmaError
from livedma.nfs.server.comebacks import Comeback
from livedma.wire.words import amount

if TYPE_CHECKING:
    from livedma.control.policy.plan import Migrate
    from livedma.nfs.server.service import NfsService
    from livedma.rpc.rdma_server import RdmaConnection

__all__ = ["Cutover", "Cutovers"]

DRAIN_S = 1.0  # for calls under way to be answered; those that take longer are repeated
ALL_BACK_S = 0.2  # after the first session, for the others to come
_KEPT = 64  # cutovers that are over, whose end is still told
_WHY = "its client is to come back to a larger connection"
_END_S = 10.0

#: Gives a connection the memory and the credits of a plan; returns in words what it has then.
Grow = Callable[["RdmaConnection", int, int], str]


@dataclass(slots=True)
class Cutover:
    """Says what became of a cutover. `successor` is the number of the new connection. `failed` says
    why there is none, or why it has no more memory than any other.
    """

    is_over: bool = False
    successor: int | None = None
    pause_s: float | None = None
    failed: str = ""


class Cutovers:
    """Makes the cutovers of one server. Each has a thread of its own, since it takes as long as the
    client needs to come back; its end is told as an event.
    """

    def __init__(self, service: NfsService, grow: Grow, events: Events) -> None:
        self._service = service
        self._grow = grow
        self._events = events
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Cutover] = OrderedDict()
        self._running: dict[int, tuple[Comeback, threading.Thread]] = {}
        self._is_closed = False
        self.pause_s: float | None = None  #: of the last one; None: there was none

    def begin(self, action: Migrate) -> None:
        """Raises what `Comebacks.prepare` does; then nothing has changed."""
        number = action.connection
        comeback = self._service.comebacks.prepare(
            number, mapped_bytes=action.bytes, credits_wanted=action.credits
        )
        cutover = Cutover()
        thread = threading.Thread(
            target=self._run,
            args=(comeback, cutover),
            name=f"livedma-cutover-{number}",
            daemon=True,
        )
        with self._lock:
            if self._is_closed:
                self._service.comebacks.forget(comeback)
                raise LivedmaError("the controller ends")
            self._known[number] = cutover
            self._running[number] = comeback, thread
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        thread.start()

    def of(self, number: int) -> Cutover | None:
        """Returns the last one of a connection, for a while also after its end."""
        return self._known.get(number)

    def give_up(self, number: int) -> None:
        """Releases what was prepared; the client still comes back, as any other."""
        with self._lock:
            running = self._running.get(number)
        if running is not None:
            running[0].give_up()

    def close(self) -> None:
        """Gives all up, and waits for their threads."""
        with self._lock:
            self._is_closed = True
            running = list(self._running.values())
        for comeback, _ in running:
            comeback.give_up()
        for _, thread in running:
            thread.join(_END_S)

    def _run(self, comeback: Comeback, cutover: Cutover) -> None:
        number = comeback.left.number
        try:
            text = self._cut(comeback, cutover)
        except Exception as error:
            text = cutover.failed = described(error)
        self._service.comebacks.forget(comeback)
        if cutover.pause_s is not None:
            self.pause_s = cutover.pause_s
        data = {"successor": cutover.successor, "pause_s": cutover.pause_s}
        self._events.tell(
            "failed" if cutover.failed else "done", text, connection=number, data=data
        )
        with self._lock:
            cutover.is_over = True
            self._running.pop(number, None)

    def _cut(self, comeback: Comeback, cutover: Cutover) -> str:
        """Ends the connection, and waits for its client. Returns what to tell."""
        try:
            last_s = comeback.left.drain(DRAIN_S)
        finally:  # it takes no call any more
            comeback.ends(_WHY)
        left_s = time.monotonic()
        if not comeback.wait(1, self._service.server.config.lease_s) or not comeback.successor:
            why = f" ({comeback.refused})" if comeback.refused else ""
            cutover.failed = (
                f"its client has not come back within {time.monotonic() - left_s:.0f} s{why}; "
                "nothing is kept for it any more"
            )
            return cutover.failed
        cutover.successor = comeback.successor.number
        cutover.pause_s = max(comeback.first_s - last_s, 0.0)
        terms = comeback.terms
        try:
            has = self._grow(comeback.successor, terms.mapped_bytes, terms.credits)
        except (LivedmaError, OSError, MemoryError, ValueError) as error:
            cutover.failed = f"it has no more memory than others ({described(error)})"
            has = cutover.failed
        back, there = comeback.wait(len(comeback.sessions), ALL_BACK_S), len(comeback.sessions)
        sessions = amount(there, "session") if back >= there else f"{back} of {there} sessions"
        return f"{sessions} in {duration(cutover.pause_s * 1e9)}: {has}"
