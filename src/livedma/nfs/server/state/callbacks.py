# SPDX-License-Identifier: BSD-2-Clause
"""Calls clients (RFC 8881 20), and knows whose call is under way, by which connection, and since
when.

No thread waits for an answer. It comes as a message, in whichever thread takes it, and `tick`
notices answers that do not come. The caller of a method holds the server's lock, except for
`replied` and `tick`, which take it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import StatusFlag
from livedma.nfs.server.state.backchannel import BackChannel, Outcome, Request
from livedma.rpc.service import CallingConnection, Connection

if TYPE_CHECKING:
    from livedma.nfs.server.state.clients import Client
    from livedma.nfs.server.state.sessions import Session

__all__ = ["Callbacks"]

ANSWER_S = 10.0
_XIDS = 1 << 32
_WAITING_MOST = 4096  # requests of a session


@dataclass(slots=True)
class _Sent:
    session: Session
    connection: Connection
    until_s: float


class Callbacks:
    """Makes the calls to all clients. strangers: how many replies answered no call.

    on_path: is called with sessions whose back channel has come up or gone down.
    """

    def __init__(self, clock: Callable[[], float], lock: threading.RLock) -> None:
        self._clock = clock
        self._lock = lock
        self._sent: dict[int, _Sent] = {}
        self._xid = secrets.randbits(32)
        self.strangers = 0
        self.on_path: list[Callable[[Session], None]] = []

    def can_call(self, client: Client) -> bool:
        """Returns whether the client can be called, as far as the server knows."""
        return any(session.back_channel.is_up for session in client.sessions.values())

    def flags(self, session: Session) -> int:
        """Returns what SEQUENCE says about the session's back channel."""
        channel = session.back_channel
        if channel.is_up or not channel.is_granted:
            return 0
        if self.can_call(session.client):
            return StatusFlag.CB_PATH_DOWN_SESSION
        return StatusFlag.CB_PATH_DOWN_SESSION | StatusFlag.CB_PATH_DOWN

    def ask(self, client: Client, request: Request) -> bool:
        """Queues a request; False if the client cannot be called: `done` is then never called."""
        for session in client.sessions.values():
            channel = session.back_channel
            if channel.is_up and len(channel.waiting) < _WAITING_MOST:
                channel.waiting.append(request)
                self._go_on(session)
                return True
        return False

    def bind(self, session: Session, connection: CallingConnection) -> None:
        """Lets the session's client be called by this connection. A request that got no answer is
        sent again.
        """
        channel = session.back_channel
        if channel.is_faulty and channel.xid is not None:
            del self._sent[channel.xid]
            channel.xid = None
        channel.bind(connection)
        self._go_on(session)
        self._tell(session)

    def unbind(self, session: Session, connection: Connection) -> None:
        """Removes a connection that has ended."""
        channel = session.back_channel
        if channel.connections.pop(connection.number, None) is None:
            return
        if channel.xid is not None and self._sent[channel.xid].connection is connection:
            del self._sent[channel.xid]
            channel.xid = None
        if channel.connections:
            self._go_on(session)
        else:
            self._give_up(channel)
        self._tell(session)

    def session_gone(self, session: Session) -> None:
        """Ends the session's calls; its client cannot be called through it any more."""
        channel = session.back_channel
        if channel.xid is not None:
            del self._sent[channel.xid]
            channel.xid = None
        channel.connections.clear()
        self._give_up(channel)

    def replied(self, connection: Connection, message: bytes) -> None:
        """Takes a reply; it has to come by the connection that the call went by."""
        xid = int.from_bytes(message[:4], "big")
        with self._lock:
            sent = self._sent.get(xid)
            if sent is None or sent.connection is not connection:
                self.strangers += 1
                return
            del self._sent[xid]
            self._answered(sent.session, message)

    def _answered(self, session: Session, message: bytes) -> None:
        channel = session.back_channel
        request, channel.xid = channel.current, None
        assert request is not None
        outcome, status = channel.take(message)
        if outcome is Outcome.BROKEN:
            self._fault(session)
            return
        if channel.is_faulty:  # It was only late.
            channel.is_faulty = False
            self._tell(session)
        if outcome is Outcome.USED:
            channel.current = None
            request.done(status)
            self._go_on(session)

    def tick(self, sessions: list[Session]) -> None:
        """Gives up on answers that are late, and sends requests that are to be tried again."""
        with self._lock:
            now = self._clock()
            for sent in list(self._sent.values()):
                if now >= sent.until_s and not sent.session.back_channel.is_faulty:
                    # Its answer may still come, so the call is remembered.
                    self._fault(sent.session)
            for session in sessions:
                if session.back_channel.is_up:
                    self._go_on(session)

    def _go_on(self, session: Session) -> None:
        """Sends the next request, if the slot is free and the client can be reached."""
        channel = session.back_channel
        if channel.xid is not None or channel.is_faulty:
            return
        if channel.current is None:
            if not channel.waiting:
                return
            channel.current = channel.waiting.popleft()
        for connection in reversed(channel.connections.values()):
            xid = self._next_xid()
            if connection.call(channel.message(xid)):
                channel.xid = xid
                self._sent[xid] = _Sent(session, connection, self._clock() + ANSWER_S)
                return
        self._fault(session)

    def _next_xid(self) -> int:
        self._xid = (self._xid + 1) % _XIDS
        while self._xid in self._sent:
            self._xid = (self._xid + 1) % _XIDS
        return self._xid

    def _fault(self, session: Session) -> None:
        session.back_channel.is_faulty = True
        self._give_up(session.back_channel)
        self._tell(session)

    @staticmethod
    def _give_up(channel: BackChannel) -> None:
        """Tells those that wait that the client could not be asked. The slot keeps its request
        until the client has answered: another one with its sequence would be taken for a
        repetition.
        """
        given_up = list(channel.waiting)
        channel.waiting.clear()
        if channel.current is not None:
            given_up.insert(0, channel.current)
            channel.current = Request(channel.current.op, channel.current.arguments, _ignore)
        for request in given_up:
            request.done(None)

    def _tell(self, session: Session) -> None:
        for changed in self.on_path:
            changed(session)


def _ignore(_: object) -> None:
    """Takes the status of a request that was given up."""
