# SPDX-License-Identifier: BSD-2-Clause
"""Makes sessions, binds them to connections, resizes and destroys them (RFC 8881 2.10, 18.34 to
18.37).

Slots and replies are in C (`SlotTable`), since requests that do not pass Python use them, too.
Methods take the server's lock themselves.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma._native.nfs import SlotTable
from livedma.nfs.numbers import SESSION_ID_BYTES, BindFrom, Bound, NfsError, Status
from livedma.nfs.server.state.backchannel import BackChannel, CallbackSecurity
from livedma.nfs.server.state.callbacks import Callbacks
from livedma.nfs.server.state.channel import ChannelAttributes, negotiate_back, negotiate_fore
from livedma.nfs.server.state.clients import Client, Clients, principal_of
from livedma.rpc.names import TransportKind
from livedma.rpc.service import CallingConnection, Connection
from livedma.rpc.xdr import Encoder

if TYPE_CHECKING:
    from livedma.nfs.server.config import Config
    from livedma.nfs.server.context import Credential

__all__ = ["CreateSession", "Session", "SessionFacts", "Sessions"]

CONN_BACK_CHAN = 0x2  # CREATE_SESSION4_FLAG_*


@dataclass(frozen=True, slots=True)
class CreateSession:
    """Holds the arguments of CREATE_SESSION that matter here."""

    client: int
    sequence: int
    fore: ChannelAttributes
    back: ChannelAttributes
    security: CallbackSecurity
    minor: int
    wants_back: bool = False


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """Holds the facts about a session that are shown to others. connections: their numbers."""

    id: bytes
    client: int
    slots: int
    slots_target: int
    connections: tuple[int, ...]
    counters: dict[str, int]


class Session:
    """Holds the state of one session. `connections`: those that are bound to it, by number.
    slots_asked: what the client asked for; it may have got fewer."""

    def __init__(
        self,
        client: Client,
        fore: ChannelAttributes,
        back: ChannelAttributes,
        asked: CreateSession,
    ) -> None:
        self.id = secrets.token_bytes(SESSION_ID_BYTES)
        self.client = client
        self.fore = fore
        self.back = back
        self.back_channel = BackChannel(self.id, asked.minor, asked.security)
        self.slots_asked = asked.fore.requests  #: what the client wanted, and may not have got
        self.slots = SlotTable(self.id, client.number, fore.requests, fore.cached_bytes)
        self.slots.request_max = fore.request_bytes
        self.slots.response_max = fore.response_bytes
        self.connections: dict[int, Connection] = {}
        self._seen_ns = self.slots.used_ns

    def set_slots(self, slots: int) -> None:
        """Sets how many requests the client may have at a time; its next reply says so.

        More slots are there at once; slots go only once the client has followed.
        """
        self.slots.target = slots

    def was_used(self) -> bool:
        """Returns whether it was used since the last call of this method."""
        used_ns = self.slots.used_ns
        was_used = used_ns != self._seen_ns
        self._seen_ns = used_ns
        return was_used

    def facts(self) -> SessionFacts:
        """Returns the facts about it."""
        return SessionFacts(
            self.id,
            self.client.number,
            self.slots.size,
            self.slots.target,
            tuple(self.connections),
            self.slots.counters,
        )


class Sessions:
    """Holds all sessions of a server.

    config: it may be replaced, and counts for new sessions.
    The owner of the memory says where new sessions are refused, since they could not have theirs.
    on_made, on_gone, on_bound: are called with sessions, under the server's lock.
    """

    def __init__(
        self, config: Config, clients: Clients, callbacks: Callbacks, lock: threading.RLock
    ) -> None:
        self.config = config
        self._clients = clients
        self._callbacks = callbacks
        self._lock = lock
        self._sessions: dict[bytes, Session] = {}
        self._of_connection: dict[int, set[Session]] = {}
        #: returns whether a client had state here when the server went down
        self.may_reclaim: Callable[[bytes], bool] = lambda owner: False
        #: returns whether a connection has only the memory that refusing takes
        self.lacks_memory: Callable[[Connection], bool] = lambda connection: False
        self._refuses_everybody = False
        self._refusing: set[int] = set()  # connections whose new sessions are refused
        self.on_made: list[Callable[[Session], None]] = []
        self.on_gone: list[Callable[[Session], None]] = []
        self.on_bound: list[Callable[[Session, Connection], None]] = []
        clients.on_gone.append(self._client_gone)

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, connection: Connection, credential: Credential, asked: CreateSession) -> bytes:
        """Serves CREATE_SESSION; a repeated request gets its result again, be it an NfsError."""
        # An error in the arguments alone leaves the client's slot as it is, as in Linux's server.
        fore = negotiate_fore(
            asked.fore, self.config, is_rdma=connection.kind == TransportKind.RDMA
        )
        back = negotiate_back(asked.back)
        with self._lock:
            client = self._clients.find(asked.client)
            self._check_origin(client, connection, credential)
            slot = client.creation
            if asked.sequence == slot.sequence:
                status, body = slot.result
                if status != Status.OK:
                    raise NfsError(status, body)
                return body
            if asked.sequence != slot.next:
                raise NfsError(Status.SEQ_MISORDERED)
            try:
                self._check_room(connection, client)
                self._clients.confirm(client, principal_of(credential))
                session = self._made(client, fore, back, asked)
            except NfsError as error:
                slot.keep(error.status, error.body)
                raise
            is_back = asked.wants_back and self._can_call(session, connection)
            body = _created(session, asked.sequence, is_back)
            slot.keep(Status.OK, body)
            self._add(session, connection)
            if is_back:
                self._bind_back(session, connection)
        return body

    @staticmethod
    def _check_origin(client: Client, connection: Connection, credential: Credential) -> None:
        """Keeps strangers from making a session, or from seeing the last one's id: client IDs are
        no secret, since a caller that meets a lock is told whose it is. The principal may change
        (18.36.4), but then the caller has to be at an address of the client.
        """
        is_known = connection.peer in client.addresses
        if client.is_confirmed and not is_known and principal_of(credential) != client.principal:
            raise NfsError(Status.WRONG_CRED)

    @property
    def refuses_everybody(self) -> bool:
        """Returns whether all new sessions are refused."""
        return self._refuses_everybody

    def refuse(self, is_refused: bool) -> bool:
        """Refuses all new sessions, or admits them again where `refuse_on` does not refuse them.
        Returns whether they were refused before.
        """
        with self._lock:
            before, self._refuses_everybody = self._refuses_everybody, is_refused
        return before

    def refuse_on(self, connection: Connection, is_refused: bool) -> bool:
        """Refuses new sessions that come by this connection until it ends, or admits them again.
        Returns whether they were refused before.
        """
        with self._lock:
            before = connection.number in self._refusing
            self._refusing.discard(connection.number)
            # `connection_closed` may have run already: nothing may be left behind.
            if is_refused and connection.is_open:
                self._refusing.add(connection.number)
        return before

    def refuses_on(self, number: int) -> bool:
        """Returns whether new sessions that come by this connection are refused, though not
        everybody's are.
        """
        return number in self._refusing

    def refuses_client(self, owner: bytes, connection: Connection) -> bool:
        """Returns whether a client would get no session wherever it asks for one: all new ones are
        refused, or the host has no memory for its connection, and it has nothing here to come back
        to.
        """
        is_refused = self._refuses_everybody or self.lacks_memory(connection)
        return is_refused and not self._is_known(owner)

    def _is_known(self, owner: bytes) -> bool:
        return self._clients.knows(owner) or self.may_reclaim(owner)

    def _check_room(self, connection: Connection, client: Client) -> None:
        """Raises NOSPC, with which Linux's client gives up. With DELAY it asks again for ever, and
        no other mount of its host goes on meanwhile; RESOURCE is not an error of 4.1.

        A client that comes back without a session gets one: it may have files open.
        """
        if len(self) >= self.config.sessions_most:
            self._clients.drop_a_courtesy()
        is_refused = (
            self._refuses_everybody
            or connection.number in self._refusing
            or self.lacks_memory(connection)
        )
        is_new = bool(client.sessions) or not self._is_known(client.owner)
        if (is_refused and is_new) or len(self) >= self.config.sessions_most:
            raise NfsError(Status.NOSPC)

    @staticmethod
    def _made(
        client: Client, fore: ChannelAttributes, back: ChannelAttributes, asked: CreateSession
    ) -> Session:
        try:
            return Session(client, fore, back, asked)
        except MemoryError:
            raise NfsError(Status.NOSPC) from None

    def _add(self, session: Session, connection: Connection) -> None:
        self._sessions[session.id] = session
        session.client.sessions[session.id] = session
        self._clients.renew(session.client)
        session.client.came_from(connection.peer)
        self._bind(session, connection)
        for made in self.on_made:
            made(session)

    def find(self, session_id: bytes) -> Session:
        """Returns the session with this id; raises BADSESSION."""
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None:
            raise NfsError(Status.BADSESSION)
        return session

    def enter(self, session: Session, connection: Connection) -> None:
        """Binds the connection by which a SEQUENCE comes, or refuses it (2.10.3.1).

        A session's id is all that a caller needs to act in it, and it can be seen on the wire. So a
        new connection has to come from an address of the client; from elsewhere, the client's
        principal has to bind it first.
        """
        if connection.number in session.connections:
            return
        with self._lock:
            if connection.peer not in session.client.addresses:
                raise NfsError(Status.CONN_NOT_BOUND_TO_SESSION)
            self._bind(session, connection)

    def bind(
        self, session_id: bytes, connection: Connection, credential: Credential, wanted: BindFrom
    ) -> Bound:
        """Serves BIND_CONN_TO_SESSION; INVAL for a back channel alone that cannot be had."""
        with self._lock:
            session = self.find(session_id)
            if principal_of(credential) != session.client.principal:
                raise NfsError(Status.WRONG_CRED)
            is_back = wanted is not BindFrom.FORE and self._can_call(session, connection)
            if wanted is BindFrom.BACK and not is_back:
                raise NfsError(Status.INVAL)
            self._clients.renew(session.client)
            session.client.came_from(connection.peer)
            if is_back:
                self._bind_back(session, connection)
            if wanted is BindFrom.BACK:
                return Bound.BACK
            self._bind(session, connection)
        return Bound.BOTH if is_back else Bound.FORE

    def _can_call(self, session: Session, connection: Connection) -> bool:
        """Returns whether a connection can call the client, and there is something to call for."""
        return (
            self.config.delegations
            and session.back_channel.security.credential is not None
            and isinstance(connection, CallingConnection)
        )

    def _bind_back(self, session: Session, connection: Connection) -> None:
        assert isinstance(connection, CallingConnection)
        self._of_connection.setdefault(connection.number, set()).add(session)
        self._callbacks.bind(session, connection)

    def _bind(self, session: Session, connection: Connection) -> None:
        session.connections[connection.number] = connection
        session.slots.bind(connection.number)
        self._of_connection.setdefault(connection.number, set()).add(session)
        for bound in self.on_bound:
            bound(session, connection)

    def connection_closed(self, connection: Connection) -> None:
        """Unbinds a connection that has ended; its sessions may go on by another one."""
        with self._lock:
            self._refusing.discard(connection.number)
            for session in self._of_connection.pop(connection.number, ()):
                if session.connections.pop(connection.number, None) is not None:
                    session.slots.unbind(connection.number)
                self._callbacks.unbind(session, connection)

    def destroy(self, session_id: bytes, connection: Connection) -> None:
        """Serves DESTROY_SESSION, by a connection that is bound to it."""
        with self._lock:
            session = self.find(session_id)
            if connection.number not in session.connections:
                raise NfsError(Status.CONN_NOT_BOUND_TO_SESSION)
            self._remove(session)

    def _remove(self, session: Session) -> None:
        del self._sessions[session.id]
        del session.client.sessions[session.id]
        for number in (*session.connections, *session.back_channel.connections):
            self._of_connection[number].discard(session)
        session.connections.clear()
        self._callbacks.session_gone(session)
        session.slots.close()
        for gone in self.on_gone:
            gone(session)

    def _client_gone(self, client: Client) -> None:
        for session in list(client.sessions.values()):
            self._remove(session)

    def all(self) -> list[Session]:
        """Returns the sessions that exist now."""
        with self._lock:
            return list(self._sessions.values())


def _created(session: Session, sequence: int, is_back: bool) -> bytes:
    out = Encoder()
    out.fixed(session.id, SESSION_ID_BYTES)
    # Replies do not survive a restart, and a TCP connection does not become one of RDMA.
    out.u32(sequence, CONN_BACK_CHAN if is_back else 0)
    session.fore.encode(out)
    session.back.encode(out)
    return bytes(out)
