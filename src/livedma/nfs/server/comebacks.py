# SPDX-License-Identifier: BSD-2-Clause
"""Expects clients back: the server ends a connection, and its client makes a larger one by itself.

A client that cannot be asked to move, such as the kernel's, connects again when its connection
ends, and goes on with its sessions. For a while, connections from its address get a larger window,
which is a range of addresses and takes no memory. The memory and the credits are for the connection
by which one of the ended connection's own sessions comes, and for no other: that takes the
session's id and an address of its client (`Sessions.enter`), or its principal (`Sessions.bind`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from livedma.errors import LivedmaError
from livedma.rpc.rdma_server import RdmaConnection
from livedma.rpc.rdma_terms import Terms, larger_terms

if TYPE_CHECKING:
    from livedma.nfs.server.service import NfsService
    from livedma.nfs.server.state.sessions import Session
    from livedma.rpc.service import Connection

__all__ = ["Comeback", "Comebacks"]

_LEAVE_S = 1.0  # after the end of a connection, for its memory to be free


class Comeback:
    """Follows one client that is to come back. `left` is the connection that ends, `sessions` are
    the ids of its sessions. `successor` is the connection by which one of them came, at `first_s`
    of the monotonic clock. Any thread may use it.
    """

    def __init__(self, left: RdmaConnection, sessions: frozenset[bytes], terms: Terms) -> None:
        self.left = left
        self.sessions = sessions
        self.terms = terms
        self.successor: RdmaConnection | None = None
        self.first_s = 0.0
        self.refused = ""  #: why the last connection from there could not be made
        self._changed = threading.Condition()
        self._guests: dict[int, RdmaConnection] = {}
        self._back: set[bytes] = set()
        self._is_away = self._is_given_up = False
        self._left_s = 0.0

    def ends(self, why: str) -> None:
        """Ends the connection: from now on its client is expected."""
        self._left_s, self._is_away = time.monotonic(), True
        self.left.close(why)

    def give_up(self) -> None:
        """Ends `wait`."""
        with self._changed:
            self._is_given_up = True
            self._changed.notify_all()

    def wait(self, sessions: int, within_s: float) -> int:
        """Waits until so many sessions are back. Returns how many are."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_given_up or len(self._back) >= sessions, within_s
            )
            return len(self._back)

    def awaits(self, peer: str) -> bool:
        return self._is_away and self.successor is None and self.left.peer == peer

    def wait_until_left(self) -> None:
        """Waits until the memory of the ended connection is free, or was not in time. After that
        nobody waits any more: clients that connect occupy threads meanwhile.
        """
        left_s = self._left_s + _LEAVE_S - time.monotonic()
        if left_s > 0:
            self.left.wait_until_gone(left_s)

    def guest(self) -> _Guest:
        """Returns what a connection from the client's address gets."""
        return _Guest(self)

    def came(self, connection: RdmaConnection) -> None:
        with self._changed:
            self._guests[connection.number] = connection

    def bound(self, session: bytes, number: int) -> None:
        """Takes note that a session came by the connection with this number."""
        if session not in self.sessions:
            return
        with self._changed:
            guest = self._guests.get(number)
            if guest is None or self.successor not in (None, guest):
                return
            if self.successor is None:
                self.successor, self.first_s = guest, time.monotonic()
                self._guests = {number: guest}
            self._back.add(session)
            self._changed.notify_all()


class _Guest:
    """Expects, for a transport, a connection that may turn out to be the client's."""

    def __init__(self, comeback: Comeback) -> None:
        self._comeback = comeback
        usual = comeback.left.options.terms
        window_bytes = max(usual.window_bytes, comeback.terms.window_bytes)
        self.terms = Terms(window_bytes, usual.mapped_bytes, usual.credits)

    def came(self, connection: RdmaConnection) -> None:
        self._comeback.came(connection)

    def refused(self, why: str) -> None:
        self._comeback.refused = why


class Comebacks:
    """Keeps the clients of one server that are to come back. Any thread may use it."""

    def __init__(self, service: NfsService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._there: dict[int, Comeback] = {}  # by the connection that ends
        service.server.sessions.on_bound.append(self._bound)

    def prepare(self, number: int, *, mapped_bytes: int, credits_wanted: int) -> Comeback:
        """Prepares larger terms for the client of a connection, until `forget`.

        Raises LivedmaError if there is no such connection, if it is being moved already, or if it
        has no session, by which its client could be known again; ValueError for terms that no
        connection could have.
        """
        left = self._service.connection(number)
        if not isinstance(left, RdmaConnection) or not left.is_open:
            raise LivedmaError(f"there is no connection {number} over RDMA")
        terms = larger_terms(left, mapped_bytes, credits_wanted)
        sessions = frozenset(
            one.id for one in self._service.server.sessions.all() if number in one.connections
        )
        if not sessions:
            raise LivedmaError("it has no session, by which its client could be known again")
        with self._lock:
            if number in self._there:
                raise LivedmaError(f"connection {number} is being moved already")
            ret = self._there[number] = Comeback(left, sessions, terms)
        return ret

    def forget(self, comeback: Comeback) -> None:
        """Releases what was prepared."""
        with self._lock:
            self._there.pop(comeback.left.number, None)

    def expect(self, peer: str) -> _Guest | None:
        """Returns what a connection from `peer` gets, once the ended one has freed its memory; None
        if no client from there is to come back.
        """
        with self._lock:
            awaiting = next((one for one in self._there.values() if one.awaits(peer)), None)
        if awaiting is None:
            return None
        # Else the budget might have no room for it yet, and the kernel's client would try again
        # only after five seconds.
        awaiting.wait_until_left()
        return awaiting.guest()

    def _bound(self, session: Session, connection: Connection) -> None:
        for one in list(self._there.values()) if self._there else ():
            one.bound(session.id, connection.number)
