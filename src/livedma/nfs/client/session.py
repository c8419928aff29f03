# SPDX-License-Identifier: BSD-2-Clause
"""Makes a session's calls in slots, and each is executed exactly once however often its connection
is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from livedma.nfs.client.bindings import Bindings
from livedma.nfs.client.codec import session as codec
from livedma.nfs.client.connection import Backoff, Connection
from livedma.nfs.client.errors import OperationFailed, OutcomeUnknown
from livedma.nfs.client.files import Files
from livedma.nfs.client.hand_over import HandedOver, HandedSlot
from livedma.nfs.client.operation import Operation, Outcome, Results
from livedma.nfs.client.slots import Slot, SlotTable
from livedma.nfs.numbers import Op, Status
from livedma.rpc.client import ConnectionLost, RpcError, Transport

if TYPE_CHECKING:
    from livedma.nfs.client.identity import Identity

__all__ = ["Session", "SessionBroken"]

_RECOVERIES_MOST = 5  # of one call: a server that loses every session is given up
_REFUSALS_MOST = 8
_OVERHEAD_BYTES = 1024  # of a message, besides its data

_BROKEN = {Status.BADSESSION, Status.DEADSESSION}
_ANSWERED_BEFORE = {Status.RETRY_UNCACHED_REP, Status.SEQ_FALSE_RETRY}
_COME_AGAIN = {Status.DELAY, Status.GRACE}


class SessionBroken(RpcError):
    """Reports that the server does not know the session any more, or disagrees about it.

    may_be_executed: the call was sent before, over a connection that was lost.
    """

    def __init__(self, why: str, may_be_executed: bool = False) -> None:
        super().__init__(why)
        self.may_be_executed = may_be_executed


class _TakeAnother(Exception):
    """Reports that the call was not executed, and its slot cannot be used."""


class _AnsweredBefore(Exception):
    """Reports that the call was executed, and its result is gone."""


class Session(Files):
    """Represents a session, made by `Client.session`. Several may share a connection; one may use
    several."""

    def __init__(
        self, identity: Identity, connection: Connection, wanted: codec.ChannelLimits
    ) -> None:
        self._identity = identity
        self._wanted = wanted
        self._bindings = Bindings(identity.terms, connection)
        self._table = SlotTable(b"", 0)
        self._limits = wanted
        self._closed = ""  # why it cannot be used any more, or nothing

    def __repr__(self) -> str:
        return f"<Session {self.session_id.hex()} with {self.slots} slots>"

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def through(self) -> Session:
        return self

    @property
    def identity(self) -> Identity:
        """Returns the client id that it belongs to."""
        return self._identity

    @property
    def session_id(self) -> bytes:
        return self._table.session_id

    @property
    def is_open(self) -> bool:
        """Returns whether it is neither closed nor handed over."""
        return not self._closed

    @property
    def limits(self) -> codec.ChannelLimits:
        """Returns the limits that the server agreed to."""
        return self._limits

    @property
    def slots(self) -> int:
        """Returns how many calls may be under way now; any reply of the server may change it."""
        return self._table.limit

    @property
    def waiting(self) -> int:
        """Returns how many calls wait for a slot."""
        return self._table.waiting

    @property
    def read_bytes(self) -> int:
        """Returns the most bytes that one READ asks for."""
        return max(1, min(self._identity.read_most, self._limits.response_bytes - _OVERHEAD_BYTES))

    @property
    def write_bytes(self) -> int:
        """Returns the most bytes that one WRITE carries."""
        return max(1, min(self._identity.write_most, self._limits.request_bytes - _OVERHEAD_BYTES))

    @property
    def connections(self) -> tuple[Connection, ...]:
        return self._bindings.connections

    # Making and ending it.

    async def create(self, backoff: Backoff) -> None:
        """Makes the session at the server, or makes it again: its former slots are forgotten."""
        connection = self.connections[0]
        async with self._identity.creating:
            created, transport = await self._created(connection, backoff)
        self._limits = created.fore
        self._bindings.begin(created.session_id, connection, transport)
        self._table.close()
        self._table = SlotTable(created.session_id, created.fore.slots)

    async def _created(
        self, connection: Connection, backoff: Backoff
    ) -> tuple[codec.Created, Transport]:
        while True:
            transport = await connection.ensure(backoff)
            try:
                return (
                    await self._identity.create_session(connection, transport, self._wanted),
                    transport,
                )
            except ConnectionLost:  # It has a sequence of its own, so it can be repeated.
                if backoff.is_over:
                    raise
            except OperationFailed as failed:
                if failed.status != Status.DELAY or backoff.is_over:
                    raise
            await backoff.wait()

    async def bind(self, connection: Connection) -> None:
        """Binds the session to one more connection."""
        await self._bindings.add(connection, Backoff(self._identity.terms.patience_s))

    def unbind(self, connection: Connection) -> None:
        """Removes a connection: calls from now on use the session's other ones."""
        self._bindings.remove(connection)

    async def hand_over(self) -> HandedOver:
        """Ends the use of the session here, but leaves it at the server, for another program.

        Waits for calls under way. Files that were opened through it then use another session of the
        client id, which has to have one: its calls renew the lease.
        """
        self._use()
        table = self._table
        self._closed = "it was handed over"
        await table.drained()
        for slot in table.slots:
            if slot.in_doubt:
                await self._resolve(table, slot, Backoff(self._identity.terms.patience_s))
        self._identity.forget(self)
        table.close()
        return HandedOver(
            table.session_id,
            self._identity.client_id,
            self._identity.terms.minor,
            tuple(HandedSlot(slot.number, slot.sequence) for slot in table.slots),
            self._limits,
            self._identity.lease_s,
        )

    async def close(self) -> None:
        """Destroys the session; calls under way raise. Idempotent."""
        if self._closed:
            return
        self._closed = "it was closed"
        self._identity.forget(self)
        self._table.close()
        destroy = codec.destroy_session(self.session_id)
        for connection in self.connections:
            if (transport := connection.transport) is not None:
                with contextlib.suppress(RpcError, OperationFailed):
                    await connection.perform(transport, self._identity.terms, [destroy])
                return

    def _use(self) -> None:
        if self._closed:
            raise RpcError(f"the session cannot be used: {self._closed}")

    # Calls.

    async def compound(
        self, *operations: Operation[Any], path: str = "", urgent: bool = False
    ) -> Results:
        """Executes operations in one COMPOUND behind a SEQUENCE, exactly once.

        Raises `OperationFailed` if one of them failed. Raises `OutcomeUnknown` if the server lost
        the session with its reply cache, and repeating them might do harm. path: for the error's
        text. urgent: the call is part of recovery, which other calls wait for.
        """
        can_repeat = all(one.is_repeatable for one in operations)
        backoff = Backoff(self._identity.terms.patience_s)
        recoveries = answered = 0
        while True:
            if not urgent:
                await self._identity.ready()
            self._use()
            table = self._table
            try:
                outcome = await self._in_a_slot(table, operations, path, backoff)
            except _TakeAnother:
                continue
            except _AnsweredBefore:
                answered += 1
                if not can_repeat or answered > _REFUSALS_MOST:
                    raise OutcomeUnknown(_unknown(operations, path)) from None
                continue
            except SessionBroken as broken:
                recoveries += 1
                if urgent or recoveries > _RECOVERIES_MOST:
                    raise
                self._use()
                await self._identity.recover(self, table.session_id)
                if broken.may_be_executed and not can_repeat:
                    raise OutcomeUnknown(_unknown(operations, path)) from None
                continue
            self._identity.deferred = None
            if outcome.error is None:
                return outcome.results
            before = operations[: max(0, outcome.failed_at - 1)]
            can_retry = all(one.is_repeatable and not one.keeps_reply for one in before)
            if outcome.status not in _COME_AGAIN or not can_retry or backoff.is_over:
                raise outcome.error
            self._identity.deferred = outcome.status
            await backoff.wait()

    async def _in_a_slot(
        self, table: SlotTable, operations: Sequence[Operation[Any]], path: str, backoff: Backoff
    ) -> Outcome:
        slot = await table.acquire()
        if slot is None:
            self._use()
            raise SessionBroken("the session was lost")
        try:
            if slot.in_doubt:
                await self._resolve(table, slot, backoff)
            return await self._repeat_until_answered(table, slot, operations, path, backoff)
        finally:
            table.release(slot)

    async def _repeat_until_answered(
        self,
        table: SlotTable,
        slot: Slot,
        operations: Sequence[Operation[Any]],
        path: str,
        backoff: Backoff,
    ) -> Outcome:
        keep = any(one.keeps_reply for one in operations)
        highest = table.highest_used
        is_repeated = False
        refusals = 0
        while True:
            while True:
                connection, transport = await self._carrier(table, backoff, is_repeated)
                number = table.next_call()
                first = codec.sequence(table.session_id, slot.sequence, slot.number, highest, keep)
                slot.in_doubt = True
                try:
                    outcome = await connection.perform(
                        transport, self._identity.terms, [first, *operations], path
                    )
                    break
                except ConnectionLost:
                    if backoff.is_over:
                        raise
                    if is_repeated:  # The first time, there is nothing to wait for.
                        await backoff.wait()
                    is_repeated = True
            if outcome.error is None or outcome.failed_at > 0:
                slot.advance()
                self._heard(table, number, outcome.results[first])
                if outcome.status == Status.RETRY_UNCACHED_REP:  # RFC 8881: behind SEQUENCE
                    raise _AnsweredBefore
                return outcome
            refusals += outcome.status != Status.DELAY
            if refusals > _REFUSALS_MOST:
                raise outcome.error
            await self._refused(table, slot, outcome, is_repeated, backoff)
            highest = slot.number

    async def _refused(
        self, table: SlotTable, slot: Slot, outcome: Outcome, is_repeated: bool, backoff: Backoff
    ) -> None:
        """Handles a failed SEQUENCE. Returns if the call is to be sent again unchanged."""
        status, error = outcome.status, outcome.error
        assert isinstance(error, OperationFailed)
        if error.op != Op.SEQUENCE:  # the server did not even look at SEQUENCE
            raise error
        if status in _BROKEN:
            raise SessionBroken(f"the server answered {status.name}", is_repeated)
        if status in _ANSWERED_BEFORE:
            slot.advance()
            raise _AnsweredBefore
        if status == Status.DELAY and not backoff.is_over:
            await backoff.wait()
        elif status == Status.SEQ_MISORDERED and not is_repeated and slot.sequence != 1:
            slot.sequence = 1  # The server may have taken the slot away and given it back.
        elif status == Status.SEQ_MISORDERED:
            raise SessionBroken("the server counts otherwise", is_repeated)
        elif status == Status.BADSLOT:
            slot.in_doubt = False
            table.refuse(slot)
            if slot.number == 0:
                raise SessionBroken("the server has no slot left", is_repeated)
            raise _AnsweredBefore if is_repeated else _TakeAnother
        elif status == Status.CONN_NOT_BOUND_TO_SESSION:
            self._bindings.forget()
        elif status != Status.BAD_HIGH_SLOT:
            raise error

    async def _resolve(self, table: SlotTable, slot: Slot, backoff: Backoff) -> None:
        """Finds out what became of the last call in a slot.

        The server either executes a SEQUENCE alone with the same number, since the call never
        arrived, or answers it as a repetition. In both cases the server has counted it.
        """
        while True:
            connection, transport = await self._carrier(table, backoff, False)
            number = table.next_call()
            probe = codec.sequence(
                table.session_id, slot.sequence, slot.number, table.highest_used, False
            )
            try:
                outcome = await connection.perform(
                    transport, self._identity.terms, [probe], only_first=True
                )
            except ConnectionLost:
                if backoff.is_over:
                    raise
                await backoff.wait()
                continue
            if outcome.error is None:
                slot.advance()
                self._heard(table, number, outcome.results[probe])
                return
            try:
                await self._refused(table, slot, outcome, True, backoff)
            except _AnsweredBefore:
                if slot.in_doubt or outcome.status == Status.BADSLOT:
                    raise _TakeAnother from None
                return

    async def _carrier(
        self, table: SlotTable, backoff: Backoff, is_repeated: bool
    ) -> tuple[Connection, Transport]:
        try:
            if self._table is table:
                return await self._bindings.carrier(backoff)
            why = "another took its place"
        except OperationFailed as failed:
            if failed.status not in _BROKEN:
                raise
            why = failed.status.name
        raise SessionBroken(f"the session was lost: {why}", is_repeated)

    def _heard(self, table: SlotTable, number: int, said: codec.Sequenced) -> None:
        table.update(number, said.highest, said.target)
        self._identity.heard(said.flags)


def _unknown(operations: Sequence[Operation[Any]], path: str) -> str:
    what = ", ".join(one.op.name for one in operations if not one.is_repeatable)
    return f"{what}{f' of {path}' if path else ''}: whether it was executed is not known"
