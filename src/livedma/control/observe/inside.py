# SPDX-License-Identifier: BSD-2-Clause
"""Makes snapshots in the server itself: what it did, and what its requests waited for."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from livedma._native.nfs import SessionLook
from livedma._native.storage import EndpointLook
from livedma.control.observe.client_names import Names
from livedma.control.observe.inside_tcp import TcpLook
from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideSession,
    Session,
    Snapshot,
    Times,
)
from livedma.nfs.server.service import NfsService
from livedma.nfs.server.state.sessions import Session as NfsSession
from livedma.rpc.rdma_server import RdmaConnection, RdmaServer
from livedma.rpc.service import Connection as RpcConnection

__all__ = ["InsideSource", "went_wrong"]

_NO_TIMES = Times()
# The device's counters for both directions: errors found here, and errors that the peer reported.
_RNR_NAKS = ("send_rnr_err", "rcvd_rnr_err")
_NAKS = ("out_of_seq_request", "packet_seq_err", "remote_access_err", "remote_invalid_req_err")
_RETRANSMISSIONS = ("duplicate_request", "completer_retry_err")


class InsideSource:
    """Makes snapshots of a service. Each source has intervals of its own, independent of other
    sources. Only one thread may use it at a time.
    """

    def __init__(self, service: NfsService) -> None:
        """Begins the first interval now."""
        self._service = service
        self._connections: dict[int, _ConnectionLook] = {}
        self._sessions: dict[bytes, _SessionLook] = {}
        self._tcp: dict[int, TcpLook] = {}
        self._busy_ns: dict[RdmaServer, int] = {}
        self._tcp_busy_ns = 0
        self._at_s = time.monotonic()
        self.snapshot()

    def snapshot(self) -> Snapshot:
        """Returns what has happened since the last snapshot."""
        at_s = time.monotonic()
        interval_s, self._at_s = at_s - self._at_s, at_s
        names = Names()
        sessions = tuple(self._look_at_sessions(names))
        used = Counter(number for one in sessions for number in one.connections)
        seen = (*self._look_at_connections(used, names), *self._look_at_tcp(used, names))
        refuses_on = self._service.server.sessions.refuses_on
        connections = tuple(
            replace(one, refuses_sessions=True) if refuses_on(one.number) else one for one in seen
        )
        return Snapshot(
            at_s=at_s,
            wall_s=time.time(),
            interval_s=interval_s,
            source="server",
            connections=connections,
            sessions=sessions,
            host=Host(
                cpu_busy=self._cpu_busy(interval_s),
                mapped_bytes=sum(one.inside.mapped_bytes for one in connections if one.inside),
                pinned_bytes=sum(one.inside.pinned_bytes or 0 for one in connections if one.inside),
                budget_bytes=None,
                refuses_sessions=self._service.server.sessions.refuses_everybody,
                tcp_busy=self._tcp_busy(interval_s),
            ),
        )

    def _look_at_sessions(self, names: Names) -> Iterator[Session]:
        looks, self._sessions = self._sessions, {}
        for session in self._service.server.sessions.all():
            names.add(session)
            look = self._sessions[session.id] = looks.get(session.id) or _SessionLook()
            seen = look.again(session)
            if seen is not None:
                yield seen

    def _look_at_connections(self, used: Counter[int], names: Names) -> Iterator[Connection]:
        looks, self._connections = self._connections, {}
        for server in self._service.rdma:
            for connection in server.connections:
                number = connection.number
                look = self._connections[number] = looks.get(number) or _ConnectionLook()
                with contextlib.suppress(ValueError):  # the connection ends; its pools are closed
                    follows = self._service.guidance.follows(number)
                    seen = look.again(connection, used[number], names.of(number), follows)
                    if seen is not None:
                        is_least = connection.is_least
                        yield replace(seen, refuses_sessions=True) if is_least else seen

    def _look_at_tcp(self, used: Counter[int], names: Names) -> Iterator[Connection]:
        looks, self._tcp = self._tcp, {}
        for server in self._service.tcp:
            for connection in server.open_connections():
                number = connection.number
                look = self._tcp[number] = looks.get(number) or TcpLook()
                yield look.again(connection, used[number], names.of(number))

    def _cpu_busy(self, interval_s: float) -> float | None:
        """Returns the busy part of the busiest device's thread, 0 to 1. Time that it looks for
        packets in vain does not count.
        """
        before, self._busy_ns = self._busy_ns, {}
        for server in self._service.rdma:
            with contextlib.suppress(ValueError):  # the device is closed
                self._busy_ns[server] = server.busy_ns
        parts = [busy_ns - before.get(one, 0) for one, busy_ns in self._busy_ns.items()]
        if not parts or interval_s <= 0:
            return None
        return min(max(parts) / 1e9 / interval_s, 1.0)

    def _tcp_busy(self, interval_s: float) -> float | None:
        """Returns the busy time of the threads that serve TCP, in CPUs. None: none serve it."""
        if not self._service.tcp:
            return None
        before_ns = self._tcp_busy_ns
        self._tcp_busy_ns = sum(server.busy_ns for server in self._service.tcp)
        if interval_s <= 0:
            return None
        return max(self._tcp_busy_ns - before_ns, 0) / 1e9 / interval_s


class _SessionLook:
    def __init__(self) -> None:
        self._look = SessionLook()
        self._numbers: tuple[int, ...] = ()
        self._figures: tuple[object, ...] = ()
        self._seen: Session | None = None

    def again(self, session: NfsSession) -> Session | None:
        """Returns the session as seen now. None: no connection is bound to it."""
        figures = (*self._look.again(session.slots), tuple(session.connections.values()))
        # Most of thousands of sessions may do nothing: their last figures are used again.
        if figures != self._figures:
            self._figures = figures
            self._seen = self._show(session, *figures)
        return self._seen

    def _show(
        self,
        session: NfsSession,
        now: tuple[int, int, int],
        counted: tuple[int, int, int, int, int, int],
        times: tuple[int, int, int, int, int] | None,
        bound: tuple[RpcConnection, ...],
    ) -> Session | None:
        slots, slots_target, executing = now
        most, operations, read_bytes, written_bytes, waited_ns, storage_ns = counted
        numbers = tuple(one.number for one in bound)
        # Connections that the session has lost since then served it in this interval.
        shown = numbers or (self._numbers if operations else ())
        self._numbers = numbers
        if not shown:
            return None
        return Session(
            id=session.id.hex(),
            connections=shown,
            operations=operations,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            latency=_NO_TIMES if times is None else Times(*times),
            in_flight=executing,
            inside=InsideSession(
                slots=slots,
                slots_target=slots_target,
                slots_used_most=most,
                memory_waited_ns=waited_ns,
                storage_ns=storage_ns,
                slots_asked=session.slots_asked,
                calls=operations,
                calls_ns=0 if times is None else times[1],
            ),
        )


class _ConnectionLook:
    def __init__(self) -> None:
        self._look = EndpointLook()
        self._wrong: tuple[int, ...] = (0, 0, 0)

    def again(
        self, connection: RdmaConnection, sessions: int, name: str, follows: bool
    ) -> Connection | None:
        """Returns the connection as seen now. None: it has no endpoint, before it begins or after
        it has ended. Raises ValueError while it ends.
        """
        endpoint = connection.endpoint
        if endpoint is None:
            return None
        seen = self._look.again(endpoint)
        wrong = went_wrong(endpoint.qp.counters)
        rnr_naks, naks, retransmissions = map(int.__sub__, wrong, self._wrong)
        self._wrong = wrong
        server_qpn, client_qpn = connection.qpns
        latency = Times(*seen["latency"])
        return Connection(
            number=connection.number,
            server=connection.server,
            server_qpn=server_qpn,
            client=connection.peer,
            client_qpn=client_qpn,
            sessions=sessions,
            operations=latency.count,
            read_bytes=seen["read_bytes"],
            written_bytes=seen["written_bytes"],
            latency=latency,
            in_flight=seen["in_progress"],
            credits_asked=seen["asked"],
            credits_granted=seen["granted"],
            rnr_naks=rnr_naks,
            naks=naks,
            retransmissions=retransmissions,
            unanswered=seen["dropped_calls"],
            inside=_inside(connection, seen, follows),
            client_port=connection.port or None,
            client_name=name,
        )


def _inside(connection: RdmaConnection, seen: dict[str, Any], follows: bool) -> Inside:
    memory = connection.memory
    buffers_taken, buffers_wanted = memory.taken()
    return Inside(
        window_bytes=memory.window.size,
        mapped_bytes=memory.window.linked,
        pinned_bytes=memory.window.pinned,
        room_bytes=memory.room,
        first_bytes=memory.first_bytes,
        first_buffers=memory.first_buffers,
        buffer_bytes=memory.data_pool.buffer_size,
        buffers=memory.buffers,
        buffers_taken=buffers_taken,
        buffers_wanted=buffers_wanted,
        credits=seen["credits"],
        credits_max=connection.credits_max,
        receives_posted=seen["posted"],
        receives_late=seen["receives_late"],
        in_progress=seen["in_progress"],
        memory_waits=Times(*seen["buffer_waits"]),
        send_waits=Times(*seen["send_waits"]),
        storage=Times(*seen["storage"]),
        storage_queue=Times(*seen["storage_queue"]),
        kept_back_bytes=memory.kept_back_bytes,
        follows=follows,
    )


def went_wrong(counters: dict[str, int]) -> tuple[int, ...]:
    """Returns a queue pair's RNR NAKs, NAKs and retransmissions so far."""
    groups = (_RNR_NAKS, _NAKS, _RETRANSMISSIONS)
    return tuple(sum(counters[name] for name in names) for names in groups)
