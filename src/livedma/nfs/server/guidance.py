# SPDX-License-Identifier: BSD-2-Clause
"""Says where a server wants the sessions of its clients: on another connection, with other memory.

The server asks only for what a client may do by itself, and the client decides; a client that does
not ask is never told. The next connection from a client's address gets the memory of an
instruction only after the client was told of that instruction, once, and within OFFER_S. What
clients report is kept for people and for the controller; nothing depends on its being true.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from livedma.errors import LivedmaError
from livedma.nfs.guidance_protocol import Advice, Instruction, Progress, Report, Verdict
from livedma.rpc.rdma_server import RdmaConnection
from livedma.rpc.rdma_terms import Terms, larger_terms
from livedma.rpc.service import Connection

if TYPE_CHECKING:
    from livedma.nfs.server.service import NfsService

__all__ = ["Guidance", "GuidanceState", "Phase"]

ASK_AGAIN_MS = 50
OFFER_S = 10.0  # for a client that was told to come
_ENDED_MOST = 64  # connections that have ended, whose last state is still told

Phase = Literal["asked", "told", "opened", "moving", "done", "refused", "lost"]
_UNDER_WAY: tuple[Phase, ...] = ("told", "opened", "moving")


@dataclass(slots=True)
class GuidanceState:
    """Says what became of an instruction for a connection.

    asked: its client does not know yet. told: it does. opened: its other connection, `successor`,
    exists. moving: `moved` of its `sessions` use that one. done: all use it; "spread" ends with
    opened instead. refused: the connection stays as it was, and `words` say why. lost: the
    connection ended before that.
    """

    instruction: Literal["spread", "migrate"]
    serial: int
    phase: Phase = "asked"
    moved: int = 0
    sessions: int = 0
    successor: int | None = None
    words: str = ""
    asked_s: float = 0.0  #: of the monotonic clock, as is
    told_s: float = 0.0

    @property
    def is_over(self) -> bool:
        ends = ("done", "refused", "lost", *(("opened",) if self.instruction == "spread" else ()))
        return self.phase in ends

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_over": self.is_over}


class _Guided:
    """Keeps a connection that was asked for something, or whose client asks."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.follows = False
        self.state: GuidanceState | None = None
        self.terms: Terms | None = None
        self.is_expected = False  # its client was told to come, and has not come yet


class _Guest:
    """Implements the transport's `Expected`, for a connection that a client was told to open."""

    def __init__(self, guidance: Guidance, state: GuidanceState, terms: Terms | None) -> None:
        self._guidance, self._state = guidance, state
        self.terms = terms

    def came(self, connection: RdmaConnection) -> None:
        self._guidance._settle(self._state, "opened", successor=connection.number)

    def refused(self, why: str) -> None:
        self._guidance._settle(self._state, "refused", words=why)


class Guidance:
    """Keeps the instructions of one server. Any thread may use it."""

    def __init__(self, service: NfsService, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()
        self._guided: dict[int, _Guided] = {}
        self._ended: OrderedDict[int, GuidanceState] = OrderedDict()
        self._serial = 0

    # For the controller and people.

    def spread(self, connection: int) -> None:
        """Asks the client to open another connection for new sessions; its present ones stay.

        Raises LivedmaError if there is no such connection, or it is being moved.
        """
        self._ask(self._find(connection), "spread", None)

    def migrate(self, connection: int, *, mapped_bytes: int, credits: int) -> None:  # noqa: A002
        """Asks the client to move all its sessions to a new connection, which begins with
        `mapped_bytes` of memory and `credits`. Raises LivedmaError as `spread` does; ValueError.
        """
        found = self._find(connection)
        self._ask(found, "migrate", larger_terms(found, mapped_bytes, credits))

    def clear(self, connection: int) -> None:
        """Withdraws the instruction. The client still ends what it has begun."""
        with self._lock:
            guided = self._guided.get(connection)
            if guided is not None:
                guided.state, guided.terms, guided.is_expected = None, None, False

    def state(self, connection: int) -> GuidanceState | None:
        """Returns what became of the last instruction, for a while even after the connection."""
        with self._lock:
            guided = self._guided.get(connection)
            if guided is None:
                return self._ended.get(connection)
            self._expire(guided)
            return guided.state

    def follows(self, connection: int) -> bool:
        """Returns whether the connection's client asks for advice; the kernel's does not."""
        with self._lock:
            guided = self._guided.get(connection)
            return guided is not None and guided.follows

    def _find(self, number: int) -> RdmaConnection:
        for server in self._service.rdma:
            for connection in server.connections:
                if connection.number == number and connection.is_open:
                    return connection
        raise LivedmaError(f"there is no connection {number} over RDMA")

    def _ask(
        self,
        connection: RdmaConnection,
        instruction: Literal["spread", "migrate"],
        terms: Terms | None,
    ) -> None:
        with self._lock:
            guided = self._of(connection)
            self._expire(guided)
            if guided.state is not None and not guided.state.is_over:
                if guided.state.phase in _UNDER_WAY:
                    raise LivedmaError(f"connection {connection.number} is being moved already")
                guided.state = None
            self._serial = self._serial % 0xFFFFFFFF + 1
            guided.state = GuidanceState(instruction, self._serial, asked_s=self._clock())
            guided.terms, guided.is_expected = terms, False
        if not connection.is_open:
            self.closed(connection)

    # For the transport.

    def expect(self, peer: str) -> _Guest | None:
        """Returns what awaits a client from `peer` that was told to connect; first told, first."""
        with self._lock:
            waiting = [one for one in self._guided.values() if one.is_expected and one.peer == peer]
            for guided in sorted(waiting, key=lambda one: one.state.told_s if one.state else 0):
                self._expire(guided)
                if guided.is_expected and guided.state is not None:
                    guided.is_expected = False
                    return _Guest(self, guided.state, guided.terms)
        return None

    def _settle(
        self,
        state: GuidanceState,
        phase: Phase,
        *,
        successor: int | None = None,
        words: str = "",
    ) -> None:
        with self._lock:
            if state.phase in ("told", "opened"):
                state.phase, state.successor, state.words = phase, successor, words

    # For clients.

    def advise(self, connection: Connection) -> Advice:
        """Serves ADVISE: returns what the server wants of the connection that asks."""
        with self._lock:
            guided = self._of(connection)
            guided.follows = True
            self._expire(guided)
            state = guided.state
            if state is None or state.is_over:
                return Advice(0 if state is None else state.serial, Instruction.STAY, ASK_AGAIN_MS)
            if state.phase == "asked":
                state.phase, state.told_s = "told", self._clock()
                guided.is_expected = True
            return Advice(state.serial, Instruction[state.instruction.upper()], ASK_AGAIN_MS)

    def report(self, connection: Connection, report: Report) -> Verdict:
        """Serves REPORT: takes what a client says it did."""
        with self._lock:
            guided = self._of(connection)
            state = guided.state
            if state is None or state.serial != report.serial or state.phase not in _UNDER_WAY:
                return Verdict.STALE
            if not self._is_possible(state, report):
                return Verdict.WRONG
            if report.progress == Progress.REFUSED:
                state.phase, state.words = "refused", report.words
                guided.is_expected = False
            elif report.progress == Progress.OPENED:
                state.phase = "opened"
            else:
                state.phase = "moving" if report.progress == Progress.MOVING else "done"
                state.moved, state.sessions = report.moved, report.sessions
        return Verdict.TAKEN

    def _is_possible(self, state: GuidanceState, report: Report) -> bool:
        if report.progress == Progress.REFUSED:
            return True
        if state.successor is None or report.sessions > self._service.server.config.sessions_most:
            return False
        if report.progress == Progress.OPENED:
            return state.phase != "moving"
        is_whole = report.progress == Progress.MOVING or report.moved == report.sessions
        return state.instruction == "migrate" and report.moved <= report.sessions and is_whole

    def closed(self, connection: Connection) -> None:
        """Forgets a connection that has ended."""
        with self._lock:
            guided = self._guided.pop(connection.number, None)
            state = None if guided is None else guided.state
            if state is None:
                return
            if not state.is_over:
                state.phase, state.words = "lost", "the connection has ended"
            self._ended[connection.number] = state
            while len(self._ended) > _ENDED_MOST:
                self._ended.popitem(last=False)

    def _of(self, connection: Connection) -> _Guided:
        return self._guided.setdefault(connection.number, _Guided(connection.peer))

    def _expire(self, guided: _Guided) -> None:
        state = guided.state
        if guided.is_expected and state is not None and self._clock() > state.told_s + OFFER_S:
            guided.is_expected = False
            state.phase, state.words = "refused", f"the client did not come within {OFFER_S:g} s"
