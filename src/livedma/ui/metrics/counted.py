# SPDX-License-Identifier: BSD-2-Clause
"""Counts a live server's sessions and connections; no count is lost when these end.

A thread that serves calls never waits for a look: it puts aside what ends, and the next thread that
finds the books free settles it.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from livedma._native.nfs import TIMES_BOUNDS_NS, SlotTable
from livedma.control.observe.inside import went_wrong
from livedma.nfs.server.service import NfsService
from livedma.nfs.server.state.sessions import Session
from livedma.rpc.rdma_server import RdmaConnection
from livedma.rpc.tcp_connection import TcpConnection
from livedma.ui.metrics.ledger import Ledger, Seen, Tally

__all__ = ["CONNECTION", "SESSION", "Books", "Counted", "Layout"]

_CONNECTIONS = 100  # with series of their own: more than a device can have
_SETTLED = 8  # sessions that one end settles at most
_TIMES_WIDTH = len(TIMES_BOUNDS_NS) + 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Divides the places in a tally: counters, then times, then counters again."""

    counters: tuple[str, ...]
    times: tuple[str, ...]
    more: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return len(self.counters) + _TIMES_WIDTH * len(self.times) + len(self.more)

    def place(self, name: str) -> int:
        if name in self.counters:
            return self.counters.index(name)
        if name in self.times:
            return len(self.counters) + _TIMES_WIDTH * self.times.index(name)
        return self.width - len(self.more) + self.more.index(name)


#: `Endpoint.totals` and `went_wrong`; of a connection over TCP, what it has of that
CONNECTION = Layout(
    ("operations", "read_bytes", "written_bytes", "receives_late", "unanswered"),
    ("latency", "memory_waits", "send_waits", "storage", "storage_queue"),
    ("rnr_naks", "naks", "retransmissions"),
)
#: `SlotTable.totals`
SESSION = Layout(
    ("operations", "read_bytes", "written_bytes", "memory_waited_ns", "storage_ns"), ("latency",)
)


@dataclass(frozen=True, slots=True)
class Books:
    """Holds all counts up to one moment."""

    sessions: Seen[bytes]
    connections: Seen[int]


class Counted:
    """Watches a service from when it is made until `close`, without what ended before. sessions:
    how many have series of their own. Any thread may look.
    """

    def __init__(self, service: NfsService, sessions: int) -> None:
        self._service = service
        self._lock = threading.Lock()  # guards all below except the queues
        self._sessions: Ledger[bytes] = Ledger(SESSION.width, sessions)
        self._connections: Ledger[int] = Ledger(CONNECTION.width, _CONNECTIONS)
        self._last: dict[int, Tally] = {}  # of connections
        self._settled: set[int] = set()  # those of them that are still listed
        self._leaving: deque[tuple[bytes, SlotTable]] = deque()  # requests may still end in them
        self._gone: deque[tuple[int, Tally]] = deque()
        service.server.sessions.on_gone.append(self._session_gone)
        for server in service.rdma:
            server.on_gone.append(self._connection_gone)
        for tcp in service.tcp:
            tcp.on_gone.append(self._connection_gone)

    def close(self) -> None:
        self._service.server.sessions.on_gone.remove(self._session_gone)
        for server in self._service.rdma:
            server.on_gone.remove(self._connection_gone)
        for tcp in self._service.tcp:
            tcp.on_gone.remove(self._connection_gone)

    def look(self) -> Books:
        with self._lock:
            return Books(self._look_at_sessions(), self._look_at_connections())

    def _look_at_sessions(self) -> Seen[bytes]:
        listed = self._service.server.sessions.all()
        live = {one.id: one.slots.totals()[0] for one in listed}
        # Sessions that ended after that are in the queue.
        for key, tally, has_ended in self._settle_sessions(len(self._leaving)):
            live[key] = tally
            if has_ended:
                del live[key]
        return self._sessions.see(live)

    def _look_at_connections(self) -> Seen[int]:
        tallies = {one.number: self._tally(one) for one in self._listed()}
        # Connections are in the queue before they lose their endpoint, and listed until after that.
        self._settle_connections()
        self._settled &= tallies.keys()
        self._last = {
            number: tally
            for number, tally in tallies.items()
            if tally is not None and number not in self._settled
        }
        return self._connections.see(self._last)

    def _listed(self) -> list[RdmaConnection | TcpConnection]:
        return [
            *(one for server in self._service.rdma for one in server.connections),
            *(one for server in self._service.tcp for one in server.counted()),
        ]

    def _tally(self, connection: RdmaConnection | TcpConnection) -> Tally | None:
        """Returns None if it has counted nothing yet, or has ended and is in the queue."""
        if isinstance(connection, TcpConnection):
            return _tcp_tally(connection)
        endpoint = connection.endpoint
        if endpoint is None:
            return None
        totals = endpoint.totals()
        try:
            wrong = went_wrong(endpoint.qp.counters)
        except ValueError:  # its queue pair is closed: the last counts stay
            last = self._last.get(connection.number)
            wrong = (0,) * len(CONNECTION.more) if last is None else last[len(totals) :]
        return (*totals, *wrong)

    def _session_gone(self, session: Session) -> None:
        """Takes a session that ends. The caller holds the server's lock."""
        self._leaving.append((session.id, session.slots))
        if self._lock.acquire(blocking=False):
            try:
                self._settle_sessions(_SETTLED)
            finally:
                self._lock.release()

    def _settle_sessions(self, most: int) -> list[tuple[bytes, Tally, bool]]:
        """Settles so many that have ended: returns their counts, and whether those are final."""
        ret = []
        for _ in range(min(most, len(self._leaving))):
            key, slots = self._leaving.popleft()
            tally, executing = slots.totals()
            if executing:
                self._leaving.append((key, slots))
            else:
                self._sessions.end(key, tally)
            ret.append((key, tally, not executing))
        return ret

    def _connection_gone(self, connection: RdmaConnection | TcpConnection) -> None:
        tally = self._tally(connection)
        if tally is None:
            return
        self._gone.append((connection.number, tally))
        if self._lock.acquire(blocking=False):
            try:
                self._settle_connections()
                self._settled &= {one.number for one in self._listed()}
            finally:
                self._lock.release()

    def _settle_connections(self) -> None:
        while self._gone:
            number, tally = self._gone.popleft()
            self._connections.end(number, tally)
            self._settled.add(number)


def _tcp_tally(connection: TcpConnection) -> Tally:
    """Returns a tally in the order of `CONNECTION`: what only RDMA has stays zero."""
    read_bytes, written_bytes, latency, storage = connection.account.totals()
    operations = latency[-2]
    none = (0,) * _TIMES_WIDTH
    counters = (operations, read_bytes, written_bytes, 0, 0)
    times = (*latency, *none, *none, *storage, *none)
    return (*counters, *times, *(0 for _ in CONNECTION.more))
