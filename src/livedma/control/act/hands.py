# SPDX-License-Identifier: BSD-2-Clause
"""The hands carry out actions on a live server, each as a whole or not at all."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from livedma.control.act.cutovers import Cutovers
from livedma.control.events import Events
from livedma.control.policy.plan import (
    Action,
    Cut,
    Extend,
    Migrate,
    RefuseSessions,
    SetCredits,
    SetSlots,
    Shrink,
    Spread,
)
from livedma.control.words import size
from livedma.errors import BudgetError, LivedmaError
from livedma.nfs.numbers import NfsError
from livedma.wire.words import amount

if TYPE_CHECKING:
    from livedma.control.act.budget import HostBudget
    from livedma.nfs.server.service import NfsService
    from livedma.nfs.server.state.sessions import Session
    from livedma.rpc.rdma_server import RdmaConnection

__all__ = ["Hands", "Outcome", "Progress", "ServiceHands"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Describes what an action did. `text` says it in figures; `undo` takes it back, and is empty
    if that is impossible.
    """

    text: str
    undo: tuple[Action, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Progress:
    """Says how far a client is with what it was asked to do. `successor` is the number of its other
    connection, once there is one. `failed` says why the client stays as it is; then nothing has
    changed. `is_told`: an event says so already.
    """

    text: str
    is_over: bool = False
    failed: str = ""
    successor: int | None = None
    is_told: bool = False


class Hands(Protocol):
    """Carries out actions. A method that raises, whatever the exception, has changed nothing."""

    def carry_out(self, action: Action) -> Outcome: ...

    def progress(self, action: Action) -> Progress | None:
        """Returns how far the client is. None: `carry_out` has completed the action."""

    def give_up(self, action: Action) -> None:
        """Stops asking the client for it."""


class ServiceHands:
    """Carries actions out on a server in this process."""

    def __init__(
        self, service: NfsService, budget: HostBudget, events: Events | None = None
    ) -> None:
        """Keeps what it acts on. events: where the ends of cutovers are told."""
        self._service = service
        self._budget = budget
        self._cutovers = Cutovers(service, self._grow, events or Events())

    @property
    def pause_s(self) -> float | None:
        """Tells how long the last client that could not be asked was away; None: none was."""
        return self._cutovers.pause_s

    def close(self) -> None:
        """Ends the wait for clients that are to come back. Calling it again has no effect."""
        self._cutovers.close()

    def carry_out(self, action: Action) -> Outcome:
        match action:
            case Extend():
                return self._extend(action)
            case Shrink():
                return self._shrink(action)
            case SetCredits():
                return self._set_credits(action)
            case SetSlots():
                return self._set_slots(action)
            case Spread():
                self._check_follows(action.connection)
                self._service.guidance.spread(action.connection)
                return Outcome("its client was asked for another connection")
            case Migrate() if not self._service.guidance.follows(action.connection):
                self._check_budget(action)
                self._cutovers.begin(action)
                return Outcome(
                    "its client cannot be asked: once no call is under way, the connection ends, "
                    "and the client comes back to a larger one"
                )
            case Migrate():
                self._service.guidance.migrate(
                    action.connection, mapped_bytes=action.bytes, credits=action.credits
                )
                return Outcome("its client was asked to move")
            case RefuseSessions():
                return self._refuse_sessions(action)
            case Cut():
                self._service.cut(action.connection)
                return Outcome("it was cut")

    def progress(self, action: Action) -> Progress | None:
        if not isinstance(action, Spread | Migrate):
            return None
        cutover = self._cutovers.of(action.connection)
        if isinstance(action, Migrate) and cutover is not None:
            failed = cutover.failed if cutover.successor is None else ""
            return Progress("", cutover.is_over, failed, cutover.successor, is_told=True)
        state = self._service.guidance.state(action.connection)
        if state is None:
            return Progress("", is_over=True, failed="nothing is asked of its client any more")
        if state.phase in ("refused", "lost"):
            return Progress("", is_over=True, failed=state.words or state.phase)
        if state.instruction == "spread":
            text = f"new sessions go to connection {state.successor}"
        else:
            text = (
                f"{state.moved} of {amount(state.sessions, 'session')} moved to connection "
                f"{state.successor}"
            )
        return Progress(text, state.is_over, "", state.successor)

    def give_up(self, action: Action) -> None:
        if isinstance(action, Spread | Migrate):
            self._service.guidance.clear(action.connection)
            self._cutovers.give_up(action.connection)

    def _refuse_sessions(self, action: RefuseSessions) -> Outcome:
        sessions, number = self._service.server.sessions, action.connection
        text = "get NFS4ERR_NOSPC" if action.is_refused else "are admitted"
        if number is None:
            was_refused = sessions.refuse(action.is_refused)
            return Outcome(f"everybody's new sessions {text}", (RefuseSessions(was_refused),))
        connection = self._service.connection(number)
        if connection is None:
            raise LivedmaError(f"connection {number} has ended")
        was_refused = sessions.refuse_on(connection, action.is_refused)
        return Outcome(f"its new sessions {text}", (RefuseSessions(was_refused, number),))

    def _check_budget(self, action: Migrate) -> None:
        """Raises BudgetError if a cut would gain nothing: the memory for the larger connection is
        not there, even with what this one has.
        """
        left_bytes = self._budget.room().budget_bytes
        has_bytes = self._connection(action.connection).memory.window.linked
        if left_bytes is not None and action.bytes > left_bytes + has_bytes:
            raise BudgetError(
                f"{size(action.bytes)} would exceed the budget for DMA memory: {size(has_bytes)} "
                f"are this connection's, and {size(left_bytes)} are left"
            )

    def _check_follows(self, connection: int) -> None:
        if not self._service.guidance.follows(connection):
            raise LivedmaError("its client does not ask where its sessions should go")

    def _extend(self, action: Extend) -> Outcome:
        connection = self._connection(action.connection)
        before, mapped = connection.credits, connection.memory.window.linked
        added = connection.extend(min(action.bytes, connection.memory.room or 1), action.credits)
        undo: list[Action] = [Shrink(action.connection, added, before)]
        for session, slots in action.slots.items():
            with contextlib.suppress(LivedmaError):  # the session has ended meanwhile
                undo += self._set_slots(SetSlots(session, slots)).undo
        text = (
            f"mapped {size(mapped)} -> {size(connection.memory.window.linked)}, "
            f"{connection.memory.buffers} buffers, {connection.credits} credits"
        )
        return Outcome(text, tuple(undo))

    def _grow(self, connection: RdmaConnection, mapped_bytes: int, credits_wanted: int) -> str:
        """Gives a connection the terms that were prepared for its client. Returns what it has."""
        memory = connection.memory
        more_credits = max(connection.credits, credits_wanted)
        more_bytes = mapped_bytes - memory.window.linked - memory.bytes_for_credits(more_credits)
        if more_bytes <= 0 and more_credits == connection.credits:
            return f"{size(memory.window.linked)} mapped"
        return self._extend(Extend(connection.number, max(more_bytes, 1), more_credits)).text

    def _shrink(self, action: Shrink) -> Outcome:
        connection = self._connection(action.connection)
        before = connection.credits
        connection.credits = min(before, action.credits)
        try:
            length = connection.memory.shrink(action.bytes)
        except BaseException:
            connection.credits = before
            raise
        text = f"{size(length)} go as they become free, {connection.credits} credits"
        return Outcome(text, (Extend(action.connection, length, before),))

    def _set_credits(self, action: SetCredits) -> Outcome:
        connection = self._connection(action.connection)
        before, connection.credits = connection.credits, action.credits
        undo = SetCredits(action.connection, before)
        return Outcome(f"{action.credits} credits", (undo,))

    def _set_slots(self, action: SetSlots) -> Outcome:
        session = self._session(action.session)
        before = session.slots.target
        wanted = min(action.slots, self._service.server.config.slots_most)
        session.set_slots(wanted)
        return Outcome(f"{wanted} slots", (SetSlots(action.session, before),))

    def _connection(self, number: int) -> RdmaConnection:
        for server in self._service.rdma:
            for connection in server.connections:
                if connection.number == number and connection.endpoint is not None:
                    return connection
        raise LivedmaError(f"connection {number} has ended")

    def _session(self, name: str) -> Session:
        try:
            return self._service.server.sessions.find(bytes.fromhex(name))
        except (NfsError, ValueError):
            raise LivedmaError(f"session {name} has ended") from None
