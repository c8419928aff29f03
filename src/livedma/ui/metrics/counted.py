"""Counters of a live server's sessions and connections, none of which is lost when they go.

Nobody who serves calls ever waits for a look: what ends is put aside, and settled by whoever comes
next and finds the books free.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from livedma._native.nfs import TIMES_BOUNDS_NS, SlotTable
from livedma.control.inside import went_wrong
from livedma.nfs.service import NfsService
from livedma.nfs.sessions import Session
from livedma.rpc.rdma_server import RdmaConnection
from livedma.ui.metrics.ledger import Ledger, Seen, Tally

__all__ = ["CONNECTION", "SESSION", "Books", "Counted", "Layout"]

_CONNECTIONS = 100  # with series of their own: more than a device takes
_SETTLED = 8  # sessions, by one who lets one go
_TIMES_WIDTH = len(TIMES_BOUNDS_NS) + 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a tally what is: counters, then times, then counters again."""

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


#: `Endpoint.totals` and `went_wrong`
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
    """All that was counted up to one moment."""

    sessions: Seen[bytes]
    connections: Seen[int]


class Counted:
    """Watches a service from when it is made until `close`; what ended before is not in it.
    sessions: that have series of their own. Any thread may look.
    """

    def __init__(self, service: NfsService, sessions: int) -> None:
        self._service = service
        self._lock = threading.Lock()  # guards all below but the queues
        self._sessions: Ledger[bytes] = Ledger(SESSION.width, sessions)
        self._connections: Ledger[int] = Ledger(CONNECTION.width, _CONNECTIONS)
        self._last: dict[int, Tally] = {}  # of connections
        self._settled: set[int] = set()  # those of them that are listed still
        self._leaving: deque[tuple[bytes, SlotTable]] = deque()  # requests may still end in them
        self._gone: deque[tuple[int, Tally]] = deque()
        service.server.sessions.on_gone.append(self._session_gone)
        for server in service.rdma:
            server.on_gone.append(self._connection_gone)

    def close(self) -> None:
        self._service.server.sessions.on_gone.remove(self._session_gone)
        for server in self._service.rdma:
            server.on_gone.remove(self._connection_gone)

    def look(self) -> Books:
        with self._lock:
            return Books(self._look_at_sessions(), self._look_at_connections())

    def _look_at_sessions(self) -> Seen[bytes]:
        listed = self._service.server.sessions.all()
        live = {one.id: one.slots.totals()[0] for one in listed}
        # Whoever went after that is in the queue.
        for key, tally, has_ended in self._settle_sessions(len(self._leaving)):
            live[key] = tally
            if has_ended:
                del live[key]
        return self._sessions.see(live)

    def _look_at_connections(self) -> Seen[int]:
        tallies = {one.number: self._tally(one) for one in self._listed()}
        # They are in the queue before they lose their endpoint, and listed until after that.
        self._settle_connections()
        self._settled &= tallies.keys()
        self._last = {
            number: tally
            for number, tally in tallies.items()
            if tally is not None and number not in self._settled
        }
        return self._connections.see(self._last)

    def _listed(self) -> list[RdmaConnection]:
        return [one for server in self._service.rdma for one in server.connections]

    def _tally(self, connection: RdmaConnection) -> Tally | None:
        """None: it has counted nothing yet, or is in the queue of those that are gone."""
        endpoint = connection.endpoint
        if endpoint is None:
            return None
        totals = endpoint.totals()
        try:
            wrong = went_wrong(endpoint.qp.counters)
        except ValueError:  # its queue pair is closed: it was like this
            last = self._last.get(connection.number)
            wrong = (0,) * len(CONNECTION.more) if last is None else last[len(totals) :]
        return (*totals, *wrong)

    def _session_gone(self, session: Session) -> None:
        """Under the server's lock."""
        self._leaving.append((session.id, session.slots))
        if self._lock.acquire(blocking=False):
            try:
                self._settle_sessions(_SETTLED)
            finally:
                self._lock.release()

    def _settle_sessions(self, most: int) -> list[tuple[bytes, Tally, bool]]:
        """Of so many that have gone: what they counted, and whether that was all."""
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

    def _connection_gone(self, connection: RdmaConnection) -> None:
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
