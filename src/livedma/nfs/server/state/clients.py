# SPDX-License-Identifier: BSD-2-Clause
"""Keeps EXCHANGE_ID's records of the clients, and their leases.

A record is confirmed by its first CREATE_SESSION. An owner has at most one that is confirmed and
one that is not; the latter replaces the former once it is confirmed, since a client that comes with
another verifier has restarted and knows nothing of what it had.

The record of a confirmed client whose lease has run out is kept as a courtesy, with all it has,
until another client wants what it holds, room is needed, or a day has passed. The caller of a
method holds the server's lock, except for `tick`, which takes it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from livedma.nfs.numbers import NfsError, Status

if TYPE_CHECKING:
    from livedma.nfs.server.config import Config
    from livedma.nfs.server.context import Credential
    from livedma.nfs.server.state.sessions import Session

__all__ = ["Client", "ClientFacts", "Clients", "Principal", "principal_of"]

COURTESY_S = 24 * 3600
ADDRESSES_MOST = 16
_SEQUENCES = 1 << 32


class Principal(NamedTuple):
    """Names the owner of state. AUTH_SYS proves nothing, but keeps apart the callers that do not
    lie."""

    uid: int | None
    gid: int | None


def principal_of(credential: Credential) -> Principal:
    """Returns the principal that a call's credential stands for."""
    return Principal(credential.uid, credential.gid)


@dataclass(slots=True)
class CreationSlot:
    """Holds a request and its result: CREATE_SESSION's own slot of a client (RFC 8881 18.36.4)."""

    sequence: int = 0
    result: tuple[Status, bytes] = (Status.SEQ_MISORDERED, b"")  # 18.35.4: the contrived one

    @property
    def next(self) -> int:
        """Returns the sequence id of a new request."""
        return (self.sequence + 1) % _SEQUENCES

    def keep(self, status: Status, body: bytes) -> None:
        """Keeps this result for the next request."""
        self.sequence, self.result = self.next, (status, body)


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Holds the facts about a client that are shown to others."""

    number: int
    owner: bytes
    addresses: tuple[str, ...]
    is_confirmed: bool
    is_courtesy: bool
    has_reclaimed: bool
    renewed_ago_s: float
    sessions: int


@dataclass(eq=False)
class Client:
    """Holds the record of one client. `addresses`: the addresses that it has come from by itself,
    the latest last."""

    clients: Clients
    number: int
    owner: bytes
    verifier: bytes
    principal: Principal
    renewed_s: float
    is_confirmed: bool = False
    has_reclaimed: bool = False
    creation: CreationSlot = field(default_factory=CreationSlot)
    sessions: dict[bytes, Session] = field(default_factory=dict)
    addresses: dict[str, None] = field(default_factory=dict)
    logged_at: int | None = None  #: the last connection with which its name was logged

    @property
    def is_courtesy(self) -> bool:
        """Returns whether the lease has run out: other clients may be given what this one has."""
        return self.clients.has_expired(self)

    def came_from(self, address: str) -> None:
        """Notes an address that the client has proved, as far as it can, to be at."""
        self.addresses.pop(address, None)
        self.addresses[address] = None
        if len(self.addresses) > ADDRESSES_MOST:
            del self.addresses[next(iter(self.addresses))]


class Clients:
    """Holds all records of a server.

    on_gone: is called with each confirmed client that goes, before it is forgotten.
    has_state: returns whether a client has opens or locks.
    may_reclaim: returns whether the client of this name had state before a restart, while grace
    lasts.
    """

    def __init__(
        self, config: Config, boot: int, clock: Callable[[], float], lock: threading.RLock
    ) -> None:
        self._config = config
        self._boot = boot & 0xFFFFFFFF
        self._clock = clock
        self._lock = lock
        self._by_number: dict[int, Client] = {}
        self._confirmed: dict[bytes, Client] = {}
        self._unconfirmed: dict[bytes, Client] = {}
        self.on_gone: list[Callable[[Client], None]] = []
        self.has_state: Callable[[Client], bool] = lambda client: False
        self.may_reclaim: Callable[[bytes], bool] = lambda owner: False

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._by_number.values()))

    def find(self, number: int) -> Client:
        """Returns the client with this client ID; raises STALE_CLIENTID."""
        client = self._by_number.get(number)
        if client is None or (not client.is_confirmed and self.has_expired(client)):
            raise NfsError(Status.STALE_CLIENTID)
        return client

    def knows(self, owner: bytes) -> bool:
        """Returns whether the client of this name has had a session, and is not forgotten."""
        return owner in self._confirmed

    def exchange(
        self, owner: bytes, verifier: bytes, principal: Principal, address: str, *, update: bool
    ) -> Client:
        """Returns the record for a client that introduces itself (18.35.4 numbers the cases)."""
        known = self._confirmed.get(owner)
        if update:
            client = self._updated(known, verifier, principal)
        elif known is None:
            client = self._new(owner, verifier, principal)  # 1, 4
        elif known.principal != principal:  # 3
            if self.is_busy(known) and not self.has_expired(known):
                raise NfsError(Status.CLID_INUSE)
            self.expire(known)
            client = self._new(owner, verifier, principal)
        elif known.verifier == verifier:  # 2
            self.renew(known)
            client = known
        else:  # 5
            client = self._new(owner, verifier, principal)
        client.came_from(address)
        return client

    def _updated(self, known: Client | None, verifier: bytes, principal: Principal) -> Client:
        if known is None:  # 7
            raise NfsError(Status.NOENT)
        if known.verifier != verifier:  # 8
            raise NfsError(Status.NOT_SAME)
        if known.principal != principal:  # 9
            raise NfsError(Status.PERM)
        self.renew(known)  # 6
        return known

    def _new(self, owner: bytes, verifier: bytes, principal: Principal) -> Client:
        replaced = self._unconfirmed.get(owner)
        if replaced is not None:
            self._forget(replaced)
        self._make_room()
        number = self._new_number()
        client = Client(self, number, owner, verifier, principal, self._clock())
        self._by_number[number] = self._unconfirmed[owner] = client
        return client

    def _new_number(self) -> int:
        while True:
            # Numbers of other instances differ from this one's: they are stale.
            number = self._boot << 32 | secrets.randbits(32)
            if number not in self._by_number:
                return number

    def _make_room(self) -> None:
        """Drops the client that costs least: the oldest introduction, or a silent client."""
        if len(self) < self._config.clients_most:
            return
        if self._unconfirmed:
            self._forget(next(iter(self._unconfirmed.values())))
        elif not self.drop_a_courtesy():
            raise NfsError(Status.DELAY)

    def drop_a_courtesy(self) -> bool:
        """Ends the client that has been silent for longest, if its lease is over."""
        silent = [client for client in self._confirmed.values() if self.has_expired(client)]
        if not silent:
            return False
        self.expire(min(silent, key=lambda client: client.renewed_s))
        return True

    def confirm(self, client: Client, principal: Principal) -> None:
        """Serves the first CREATE_SESSION (18.36.4, phase 3); what it had before a restart goes."""
        if client.is_confirmed:
            return
        if client.principal != principal:
            raise NfsError(Status.CLID_INUSE)
        before = self._confirmed.get(client.owner)
        if before is not None:
            self.expire(before)
        del self._unconfirmed[client.owner]
        self._confirmed[client.owner] = client
        client.is_confirmed = True

    def renew(self, client: Client, session: Session | None = None) -> None:
        """Begins the client's lease anew; session: its use is the reason, and is marked as seen."""
        client.renewed_s = self._clock()
        if session is not None:
            session.was_used()

    def has_expired(self, client: Client) -> bool:
        """Returns whether nothing was heard of the client for a lease.

        The lease does not run out as long as the client may reclaim: it would lose what no other
        client can have yet (RFC 8881, 8.4.2.1).
        """
        for session in client.sessions.values():
            # The slots alone show requests that do not pass Python. One that is being executed may
            # take longer than a lease.
            if session.was_used():
                self.renew(client)
        if client.is_confirmed and self.may_reclaim(client.owner):
            return False
        return self._clock() - client.renewed_s > self._config.lease_s

    def is_busy(self, client: Client) -> bool:
        """Returns whether the client has sessions or state."""
        return bool(client.sessions) or self.has_state(client)

    def expire(self, client: Client) -> None:
        """Removes the client and all that it has."""
        if self._by_number.get(client.number) is not client:
            return
        if client.is_confirmed:
            for gone in self.on_gone:
                gone(client)
        self._forget(client)

    def _forget(self, client: Client) -> None:
        del self._by_number[client.number]
        table = self._confirmed if client.is_confirmed else self._unconfirmed
        del table[client.owner]

    def destroy(self, number: int) -> None:
        """Serves DESTROY_CLIENTID."""
        client = self.find(number)
        if self.is_busy(client):
            raise NfsError(Status.CLIENTID_BUSY)
        self.expire(client)

    def tick(self) -> None:
        """Ends clients: unconfirmed or stateless ones after a lease, all others after a day."""
        with self._lock:
            for client in self:
                if self.has_expired(client) and not self._is_kept(client):
                    self.expire(client)

    def _is_kept(self, client: Client) -> bool:
        silent_s = self._clock() - client.renewed_s
        return client.is_confirmed and self.has_state(client) and silent_s <= COURTESY_S

    def facts(self) -> list[ClientFacts]:
        """Returns the facts about all clients."""
        now = self._clock()
        return [
            ClientFacts(
                client.number,
                client.owner,
                tuple(client.addresses),
                client.is_confirmed,
                client.is_courtesy,
                client.has_reclaimed,
                now - client.renewed_s,
                len(client.sessions),
            )
            for client in self
        ]
