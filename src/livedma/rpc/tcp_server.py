# SPDX-License-Identifier: BSD-2-Clause
"""Serves RPC over TCP (RFC 5531): it has a listener, its connections, and threads that serve their
calls.

No peer can make the server hold more than `TcpLimits` says. The server does not read from a
connection that has too many calls open or does not take its replies, and cuts one that is stuck in
the middle of a record or of a reply for too long.
"""

from __future__ import annotations

import logging
import os
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from livedma.rpc.connection_log import ConnectionLog, Peer
from livedma.rpc.names import TransportKind
from livedma.rpc.record import RecordError
from livedma.rpc.refusal import not_allowed
from livedma.rpc.service import Network, Program, is_allowed
from livedma.rpc.tcp_address import listen, own_address, plain
from livedma.rpc.tcp_connection import TcpCall, TcpConnection, TcpConnectionFacts
from livedma.rpc.tcp_refusal import Refusal, Refusals

__all__ = ["Network", "TcpLimits", "TcpServer"]

_log = logging.getLogger(__name__)

_READ_BYTES = 256 << 10
_TICK_S = 1.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """Limits what peers can make the server hold.

    record_bytes: of one call. outstanding: calls of a connection that are served at a time.
    held_bytes: with more bytes of calls and of replies not taken, a connection is not read from.
    held_bytes_all: what all connections share for that, but each may have one call. stalled_s: how
    long half a record, or a reply that is not taken, may stay so.
    """

    record_bytes: int = (1 << 20) + (64 << 10)
    connections: int = 1024
    outstanding: int = 128
    held_bytes: int = 8 << 20
    held_bytes_all: int = 256 << 20
    stalled_s: float = 60.0


class TcpServer:
    """Serves `program` at `port` of `address` ("" for all addresses; port 0: any).

    allow: the networks that may connect from now on; empty: all may.
    """

    def __init__(
        self,
        program: Program,
        address: str = "",
        port: int = 0,
        *,
        allow: Sequence[Network] = (),
        limits: TcpLimits | None = None,
        threads: int = 8,
    ) -> None:
        self._program = program
        self.allow: Sequence[Network] = tuple(allow)
        self._limits = TcpLimits() if limits is None else limits
        self._listener = listen(address, port)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._is_accepting = True
        self._refusals = Refusals(self._selector)
        self.log = ConnectionLog()
        self._connections: dict[TcpConnection, int] = {}  # -> the events it is registered for
        self._accounts: dict[int, TcpConnection] = {}  # until their last call has ended
        #: called with a connection on which nothing comes any more, while its counters are still
        #: there, and before `counted` loses it
        self.on_gone: list[Callable[[TcpConnection], None]] = []
        self._clocks: list[int] = []  # of its threads' CPU time
        self._changed: deque[TcpConnection] = deque()
        self._calls: queue.SimpleQueue[tuple[TcpConnection, TcpCall] | None] = queue.SimpleQueue()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._is_stopping = False
        self.accepted = 0
        self.refused = 0
        self._threads = [threading.Thread(target=self._serve, name="rpc-tcp", daemon=True)]
        self._threads += [
            threading.Thread(target=self._work, name=f"rpc-worker-{n}", daemon=True)
            for n in range(threads)
        ]
        self._workers = threads

    def start(self) -> None:
        """Starts to serve calls."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Cuts all connections, after the calls that are being executed have ended."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for connection in list(self._connections):
            self._drop(connection, "the server ends")
        self._refusals.close()
        self._listener.close()
        self._selector.close()
        os.close(self._wake_fd)

    def __enter__(self) -> TcpServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connections(self) -> list[TcpConnectionFacts]:
        """Returns the figures of the connections that there are now."""
        return [connection.facts() for connection in list(self._connections)]

    def open_connections(self) -> list[TcpConnection]:
        """Returns the connections that there are now."""
        return list(self._connections)

    def counted(self) -> list[TcpConnection]:
        """Returns `open_connections`, and those that are cut but whose calls have not all ended."""
        return list(self._accounts.values())

    @property
    def busy_ns(self) -> int:
        """Is the CPU time of its threads so far, together."""
        busy_ns = 0
        for clock in list(self._clocks):
            with suppress(OSError):  # the thread has ended
                busy_ns += time.clock_gettime_ns(clock)
        return busy_ns

    def cut(self, number: int) -> bool:
        """Cuts the connection with this number; False if there is none."""
        found = [one for one in list(self._connections) if one.number == number]
        for connection in found:
            connection.close()
        return bool(found)

    # Threads that serve calls run what follows.

    def _work(self) -> None:
        self._clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        while (item := self._calls.get()) is not None:
            connection, call = item
            if self._is_full(connection) and connection.put_back(call):
                self._look_at(connection)
                continue
            began_ns = time.monotonic_ns()
            record, arrived_ns = call
            try:
                parts = self._program(connection, record)
            except Exception:
                _log.exception("a call from %s failed", connection.peer)
                parts = None
                connection.close("a call failed, see above")
            if parts is not None:  # counted before the client can see the reply
                connection.account.ended(arrived_ns, began_ns)
            if connection.call_ends(call, parts):
                self._gone(connection)
            elif connection.is_paused:
                self._look_at(connection)

    def _gone(self, connection: TcpConnection) -> None:
        for gone in self.on_gone:
            gone(connection)
        self._accounts.pop(connection.number, None)
        self._program.closed(connection)

    def _look_at(self, connection: TcpConnection) -> None:
        self._changed.append(connection)
        self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    # Only the server's own thread runs what follows.

    def _serve(self) -> None:
        self._clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        period_s = min(_TICK_S, self._limits.stalled_s / 2)
        tick_s = time.monotonic() + period_s
        while not self._is_stopping:
            for key, events in self._selector.select(max(0.0, tick_s - time.monotonic())):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                elif isinstance(key.data, Refusal):
                    self._refusals.move(key.data)
                else:
                    self._move(key.data, events)
            while self._changed:
                self._watch(self._changed.popleft())
            if time.monotonic() >= tick_s:
                self._tick()
                tick_s = time.monotonic() + period_s
        for _ in range(self._workers):
            self._calls.put(None)

    def _accept(self) -> None:
        try:
            sock, (host, port, *_) = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # No descriptors, which takes time, or the peer has gone.
            _log.warning("no connection can be accepted: %s", error)
            self._selector.unregister(self._listener)
            self._is_accepting = False
            return
        peer = plain(host)
        self.accepted += 1
        if not is_allowed(peer, self.allow):
            self.refused += 1
            self.log.refused(Peer(peer, port, TransportKind.TCP), str(not_allowed(peer)))
            self._refusals.add(sock, time.monotonic())
            return
        if not self._has_room():
            self.refused += 1
            why = f"it has {self._limits.connections} connections, and takes no more"
            self.log.refused(Peer(peer, port, TransportKind.TCP), why)
            sock.close()  # without a reply: clients try again
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        connection = TcpConnection(
            sock,
            peer,
            port,
            self._limits.record_bytes,
            time.monotonic(),
            self._look_at,
            own_address(sock),
        )
        self._connections[connection] = selectors.EVENT_READ
        self._accounts[connection.number] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self.log.accepted(connection.number, Peer(peer, port, TransportKind.TCP))

    def _has_room(self) -> bool:
        if len(self._connections) < self._limits.connections:
            return True
        # A connection that never sent a whole call makes room for a new one.
        silent = next((one for one in self._connections if not one.calls), None)
        if silent is None:
            return False
        self._drop(silent, "it never called, and another connection took its place")
        return True

    def _move(self, connection: TcpConnection, events: int) -> None:
        if connection not in self._connections:
            return
        if events & selectors.EVENT_WRITE and connection.flush():
            connection.moved_s = time.monotonic()
        if events & selectors.EVENT_READ and (why := self._read(connection)):
            self._drop(connection, why)
            return
        self._watch(connection)

    def _read(self, connection: TcpConnection) -> str:
        """Reads what has come. Returns why the connection has to be cut, or ""."""
        try:
            length = connection.sock.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return ""
        except OSError as error:
            return f"the connection failed: {error.strerror}"
        if not length:
            return "the peer disconnected"
        now_ns = time.monotonic_ns()
        connection.moved_s = now_ns / 1e9
        try:
            records, wrong = connection.splitter.feed(self._buffer[:length]), ""
        except RecordError as error:
            records, wrong = error.records, f"the peer broke the rules: {error}"
        for record in records:
            connection.wait(record, now_ns)
        self._feed(connection)
        return wrong

    def _feed(self, connection: TcpConnection) -> None:
        """Hands its waiting calls to the threads that serve them, up to the limits."""
        most = self._limits.outstanding
        while connection.outstanding < most and not self._is_full(connection):
            call = connection.call_begins()
            if call is None:
                return
            self._calls.put((connection, call))

    def _is_full(self, connection: TcpConnection) -> bool:
        """Tells whether too many bytes of replies wait for the peer to take them."""
        return connection.unsent_bytes >= self._limits.held_bytes

    def _watch(self, connection: TcpConnection) -> None:
        """Registers a connection for the events that it waits for now."""
        registered = self._connections.get(connection)
        if registered is None:
            return
        if not connection.is_open:
            self._drop(connection, connection.why_left)
            return
        wanted = selectors.EVENT_READ if self._is_served(connection) else 0
        if connection.unsent_bytes:
            wanted |= selectors.EVENT_WRITE
        if wanted == registered:
            return
        if not registered:
            self._selector.register(connection.sock, wanted, connection)
        elif not wanted:
            self._selector.unregister(connection.sock)
        else:
            self._selector.modify(connection.sock, wanted, connection)
        if wanted & ~registered & selectors.EVENT_WRITE:
            connection.moved_s = time.monotonic()
        self._connections[connection] = wanted

    def _is_served(self, connection: TcpConnection) -> bool:
        """Has its waiting calls served. Returns whether more may be read from it; if not, it is
        paused, and a thread that ends a call of it has this thread look at it again.
        """
        self._feed(connection)
        connection.is_paused = not self._may_read(connection)
        if connection.is_paused:  # A call may have ended before the mark was there.
            self._feed(connection)
            connection.is_paused = not self._may_read(connection)
        return not connection.is_paused

    def _may_read(self, connection: TcpConnection) -> bool:
        limits = self._limits
        share = min(limits.held_bytes, limits.held_bytes_all // len(self._connections))
        is_room = not connection.held_bytes or connection.held_bytes < share
        is_served = not connection.is_waiting and connection.outstanding < limits.outstanding
        return is_room and is_served

    def _tick(self) -> None:
        if not self._is_accepting:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._is_accepting = True
        now = time.monotonic()
        self.log.tick()
        self._refusals.tick(now)
        for connection in list(self._connections):
            is_owing = connection.unsent_bytes or not connection.splitter.is_between_records
            can_move = self._connections[connection] != 0
            if not is_owing or not can_move:
                connection.moved_s = now
            elif now - connection.moved_s > self._limits.stalled_s:
                stuck_s = self._limits.stalled_s
                self._drop(connection, f"the peer stopped in the middle for {stuck_s:g} s")
            else:
                self._watch(connection)

    def _drop(self, connection: TcpConnection, why: str) -> None:
        # A connection that another thread cut is first seen as a peer that disconnected.
        self.log.left(
            connection.number,
            Peer(connection.peer, connection.port, TransportKind.TCP),
            connection.why_left or why,
            time.monotonic() - connection.accepted_s,
            connection.calls,
        )
        if self._connections.pop(connection):
            self._selector.unregister(connection.sock)
        if connection.over():
            self._gone(connection)
