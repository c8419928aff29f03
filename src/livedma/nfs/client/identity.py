# SPDX-License-Identifier: BSD-2-Clause
"""Keeps a client id, its sessions and the lease on its state, and regains them after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine, Sequence
from typing import Any

from livedma.nfs.client.codec import session as codec
from livedma.nfs.client.codec.attribute import getattr_of
from livedma.nfs.client.codec.handle import putrootfh
from livedma.nfs.client.connection import Backoff, Connection, Terms
from livedma.nfs.client.errors import BadReply, OperationFailed
from livedma.nfs.client.opens import OpenState
from livedma.nfs.client.session import Session, SessionBroken
from livedma.nfs.numbers import VERIFIER_BYTES, Attribute, NfsError, Status, StatusFlag
from livedma.rpc.client import ConnectionLost, RpcError, Transport

__all__ = ["Identity"]

_LEASE_S = 90.0  # until the server says
_LEASE_LEAST_S = 1.0
_DATA_MOST = 1 << 30
_RENEWALS = 3  # in one lease
_GOODBYE_S = 5.0
# Of CREATE_SESSION; other refusals are about the arguments and leave the client's slot as it was.
_KEPT_REFUSALS = (Status.NOSPC, Status.CLID_INUSE)
_STALE = {Status.STALE_CLIENTID, Status.SEQ_MISORDERED, Status.BADSESSION, Status.DEADSESSION}


class Identity:
    """Represents a client id, by which a server knows a client."""

    def __init__(self, terms: Terms, owner: bytes) -> None:
        self.terms = terms
        self.owner = owner
        self.client_id = 0
        self.lease_s = _LEASE_S
        self.read_most = self.write_most = _DATA_MOST  #: bytes of one READ or WRITE
        self.opens: set[OpenState] = set()
        #: Why the server asked for its latest call to come again later; None: it did not.
        self.deferred: Status | None = None
        self.recoveries = 0  #: how often sessions or state had to be got back
        #: Held from when CREATE_SESSION is sent until it is answered, over whatever connection:
        #: the server would take another one with the same sequence for its repetition.
        self.creating = asyncio.Lock()
        self._verifier = secrets.token_bytes(VERIFIER_BYTES)
        self._sequence = 0  # of CREATE_SESSION
        self._sessions: list[Session] = []
        self._mending = asyncio.Lock()
        self._is_ready = asyncio.Event()
        self._is_ready.set()
        self._heard_s = asyncio.get_running_loop().time()
        self._renewal: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._owes_reclaim = False  # the client id is new, and not all of its state was got back
        self._is_closed = False

    @property
    def sessions(self) -> tuple[Session, ...]:
        return tuple(self._sessions)

    @property
    def heard_s(self) -> float:
        """Returns when the server last answered, by the loop's clock, which is monotonic."""
        return self._heard_s

    async def ready(self) -> None:
        """Waits while state is being got back; gets back what is left of it first."""
        await self._is_ready.wait()
        for session in self._sessions[:1] if self._owes_reclaim else ():
            await self.recover(session, session.session_id)

    async def begin(self, connection: Connection, wanted: codec.ChannelLimits) -> Session:
        """Introduces itself to the server, and makes a first session."""
        await connection.ensure(Backoff(0))  # A wrong address should not take long to find out.
        await self._exchange(connection, Backoff(self.terms.patience_s))
        session = await self.session(connection, wanted)
        await session.compound(codec.reclaim_complete(), urgent=True)
        await self._learn(session)
        self._renewal = asyncio.create_task(self._renew_forever(), name="nfs lease")
        return session

    async def session(self, connection: Connection, wanted: codec.ChannelLimits) -> Session:
        """Makes another session."""
        session = Session(self, connection, wanted)
        backoff = Backoff(self.terms.patience_s)
        while True:
            try:
                await session.create(backoff)
                break
            except OperationFailed as failed:
                if failed.status not in _STALE or not self._sessions or backoff.is_over:
                    raise
            known = self._sessions[0]
            await self.recover(known, known.session_id)
            await backoff.wait()
        self._sessions.append(session)
        return session

    async def resume(self, connection: Connection, wanted: codec.ChannelLimits) -> Session:
        """Makes a session when none may be left; the server may have forgotten the client id."""
        session = Session(self, connection, wanted)
        self._sessions.append(session)
        try:
            await self.recover(session, session.session_id)
        except BaseException:
            self.forget(session)
            raise
        return session

    def forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)

    async def close(self) -> None:
        """Gives everything back, as far as the server can be reached. Files that are open are
        closed without a commit. Idempotent.
        """
        if self._is_closed:
            return
        self._is_closed = True
        tasks = [*self._tasks, *([self._renewal] if self._renewal is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sessions = self.sessions
        with contextlib.suppress(TimeoutError, RpcError, NfsError):
            async with asyncio.timeout(_GOODBYE_S):
                await self._close_files()
                for session in sessions:
                    await session.close()
                await self._destroy(sessions)

    async def _close_files(self) -> None:
        """Closes all files; a later call on one of them learns that it is closed."""
        opens, self.opens = self.opens, set()
        for session in self._sessions[:1]:
            closing = (state.release(session) for state in opens)
            await asyncio.gather(*closing, return_exceptions=True)

    async def _destroy(self, sessions: Sequence[Session]) -> None:
        destroy = codec.destroy_clientid(self.client_id)
        for connection in (one for session in sessions for one in session.connections):
            if (transport := connection.transport) is not None:
                await connection.perform(transport, self.terms, [destroy])
                return

    # For its sessions.

    async def create_session(
        self, connection: Connection, transport: Transport, wanted: codec.ChannelLimits
    ) -> codec.Created:
        """Sends CREATE_SESSION once; after a `ConnectionLost` the caller, which holds `creating`,
        sends it again.
        """
        create = codec.create_session(self.client_id, self._sequence, wanted)
        outcome = await connection.perform(transport, self.terms, [create])
        # The server keeps a refusal as its sequence's result, too: the next request needs another.
        if outcome.error is None or outcome.error.status in _KEPT_REFUSALS:
            self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        if outcome.error is not None:
            raise outcome.error
        self._heard_s = asyncio.get_running_loop().time()
        created = outcome.results[create]
        if created.fore.slots > wanted.slots or created.fore.operations < 2:
            raise BadReply("the server made a session that was not asked for")
        return created

    def heard(self, flags: StatusFlag) -> None:
        """Notes that a SEQUENCE was answered: the lease is renewed, and its flags are obeyed."""
        self._heard_s = asyncio.get_running_loop().time()
        if flags & StatusFlag.RESTART_RECLAIM_NEEDED and self._is_ready.is_set():
            # The server's sessions outlive a restart, its other state does not.
            self._is_ready.clear()
            self._start(self._reclaim_alone())

    async def recover(self, session: Session, session_id: bytes) -> None:
        """Gets sessions and state back, unless that was done since `session` had this id.

        It goes on if the caller stops waiting: other callers need it as well.
        """
        await asyncio.shield(self._start(self._recover(session, session_id)))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="nfs recovery")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is for the callers that wait, if there still are any

    async def _recover(self, session: Session, session_id: bytes) -> None:
        async with self._mending:
            is_done = session.session_id != session_id and not self._owes_reclaim
            if is_done or self._is_closed:
                return
            self._is_ready.clear()
            try:
                await self._mend(session, Backoff(self.terms.patience_s))
                self.recoveries += 1
            finally:
                self._is_ready.set()

    async def _mend(self, broken: Session, backoff: Backoff) -> None:
        """Gets back one session or all; the client id tells which were lost."""
        while True:
            try:
                self._owes_reclaim |= await self._exchange(broken.connections[0], backoff)
                for session in self.sessions if self._owes_reclaim else [broken]:
                    await session.create(backoff)
                if self._owes_reclaim:
                    await self._reclaim(broken)
                return
            except OperationFailed as failed:
                if failed.status not in _STALE or backoff.is_over:
                    raise
                if failed.status == Status.SEQ_MISORDERED:  # Only a new life has a new count.
                    self._verifier = secrets.token_bytes(VERIFIER_BYTES)
            except (SessionBroken, ConnectionLost):
                if backoff.is_over:
                    raise
            await backoff.wait()

    async def _reclaim_alone(self) -> None:
        async with self._mending:
            try:
                for session in self._sessions[:1]:
                    await self._reclaim(session)
                    self.recoveries += 1
            except (RpcError, NfsError):
                pass  # The server will ask for it again.
            finally:
                self._is_ready.set()

    async def _reclaim(self, session: Session) -> None:
        for state in tuple(self.opens):
            await state.reclaim(session)
        try:
            await session.compound(codec.reclaim_complete(), urgent=True)
        except OperationFailed as failed:
            if failed.status != Status.COMPLETE_ALREADY:
                raise
        self._owes_reclaim = False

    async def _exchange(self, connection: Connection, backoff: Backoff) -> bool:
        """Sends EXCHANGE_ID; returns whether the server gave another client id than before."""
        exchange = codec.exchange_id(self._verifier, self.owner)
        while True:
            transport = await connection.ensure(backoff)
            try:
                outcome = await connection.perform(transport, self.terms, [exchange])
            except ConnectionLost:
                if backoff.is_over:
                    raise
                await backoff.wait()
                continue
            if outcome.error is None:
                break
            if outcome.status != Status.DELAY or backoff.is_over:
                raise outcome.error
            await backoff.wait()
        said = outcome.results[exchange]
        is_new = said.client_id != self.client_id or not said.is_confirmed
        if is_new:  # Of a known client id the server gives no sequence (18.35.4).
            self.client_id, self._sequence = said.client_id, said.sequence
        return is_new

    # The lease.

    async def _learn(self, session: Session) -> None:
        ask = getattr_of([Attribute.LEASE_TIME, Attribute.MAXREAD, Attribute.MAXWRITE])
        values = (await session.compound(putrootfh(), ask, path="/"))[ask]
        self.lease_s = max(_LEASE_LEAST_S, float(values.get(Attribute.LEASE_TIME, _LEASE_S)))
        self.read_most = max(1, values.get(Attribute.MAXREAD, _DATA_MOST))
        self.write_most = max(1, values.get(Attribute.MAXWRITE, _DATA_MOST))

    async def _renew_forever(self) -> None:
        pause_s = self.lease_s / _RENEWALS
        while True:
            now_s = asyncio.get_running_loop().time()
            due_s = self._heard_s + pause_s - now_s
            if due_s > 0 or not self._sessions:
                await asyncio.sleep(max(due_s, 0.1))
                continue
            try:
                await self._sessions[0].compound()
            except (RpcError, NfsError):
                await asyncio.sleep(min(1.0, pause_s))
