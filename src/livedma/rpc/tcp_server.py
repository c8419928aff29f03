"""RPC over TCP (RFC 5531): a listener, its connections, and threads that serve their calls.

Nothing a peer does makes the server hold more than `TcpLimits` says: a connection that has too many
calls open, or does not take its replies, is not read from; one that is stuck in the middle of a
record or of a reply for too long is cut.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from livedma.errors import LivedmaError, PortInUseError
from livedma.rpc.record import RecordError
from livedma.rpc.service import Network, Program, is_allowed
from livedma.rpc.tcp_connection import TcpConnection, TcpConnectionFacts

__all__ = ["Network", "TcpLimits", "TcpServer"]

_log = logging.getLogger(__name__)

_READ_BYTES = 256 << 10
_TICK_S = 1.0
_BACKLOG = 128
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """record_bytes: of one call. outstanding: calls of a connection that are served at a time.
    held_bytes: of its calls and of replies that it has not taken, beyond which it is not read from.
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

    allow: who may connect from now on; nothing means everybody.
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
        self._listener = _listen(address, port)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._is_accepting = True
        self._connections: dict[TcpConnection, int] = {}  # and the events it is registered for
        self._changed: deque[TcpConnection] = deque()
        self._calls: queue.SimpleQueue[tuple[TcpConnection, bytes] | None] = queue.SimpleQueue()
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
        """From now on calls are served."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Cuts all connections. Calls that are being executed end first."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for connection in list(self._connections):
            self._drop(connection)
        self._listener.close()
        self._selector.close()
        os.close(self._wake_fd)

    def __enter__(self) -> TcpServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connections(self) -> list[TcpConnectionFacts]:
        """What others may know of those that there are now."""
        return [connection.facts() for connection in list(self._connections)]

    def cut(self, number: int) -> bool:
        """Ends the connection with this number; False if it has none."""
        found = [one for one in list(self._connections) if one.number == number]
        for connection in found:
            connection.close()
        return bool(found)

    # Threads that serve calls.

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            connection, record = item
            if self._is_full(connection) and connection.put_back(record):
                self._look_at(connection)
                continue
            try:
                parts = self._program(connection, record)
            except Exception:
                _log.exception("a call from %s failed", connection.peer)
                parts = None
                connection.close()
            if connection.call_ends(record, parts):
                self._program.closed(connection)
            else:
                self._look_at(connection)

    def _look_at(self, connection: TcpConnection) -> None:
        self._changed.append(connection)
        self._wake()

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    # The server's own thread, and it alone.

    def _serve(self) -> None:
        period_s = min(_TICK_S, self._limits.stalled_s / 2)
        tick_s = time.monotonic() + period_s
        while not self._is_stopping:
            for key, events in self._selector.select(max(0.0, tick_s - time.monotonic())):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
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
        except OSError as error:  # No descriptors, or the peer has gone: the former takes time.
            _log.warning("no connection can be accepted: %s", error)
            self._selector.unregister(self._listener)
            self._is_accepting = False
            return
        address = ipaddress.ip_address(host.partition("%")[0])
        peer = str(getattr(address, "ipv4_mapped", None) or address)
        self.accepted += 1
        if not self._admits(peer):
            self.refused += 1
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        connection = TcpConnection(
            sock, peer, port, self._limits.record_bytes, time.monotonic(), self._look_at
        )
        self._connections[connection] = selectors.EVENT_READ
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _admits(self, peer: str) -> bool:
        if not is_allowed(peer, self.allow):
            return False
        if len(self._connections) < self._limits.connections:
            return True
        # Whoever has never said anything whole makes room for those who may.
        silent = next((one for one in self._connections if not one.calls), None)
        if silent is None:
            return False
        self._drop(silent)
        return True

    def _move(self, connection: TcpConnection, events: int) -> None:
        if connection not in self._connections:
            return
        if events & selectors.EVENT_WRITE and connection.flush():
            connection.moved_s = time.monotonic()
        if events & selectors.EVENT_READ and not self._read(connection):
            self._drop(connection)
            return
        self._watch(connection)

    def _read(self, connection: TcpConnection) -> bool:
        """False: the connection is to be cut."""
        try:
            length = connection.sock.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if not length:
            return False
        connection.moved_s = time.monotonic()
        try:
            records = connection.splitter.feed(self._buffer[:length])
            is_well = True
        except RecordError as error:
            _log.info("%s: %s", connection.peer, error)
            records, is_well = error.records, False
        for record in records:
            connection.wait(record)
        self._feed(connection)
        return is_well

    def _feed(self, connection: TcpConnection) -> None:
        """Has its calls served, as many as it may have."""
        while connection.outstanding < self._limits.outstanding and not self._is_full(connection):
            record = connection.call_begins()
            if record is None:
                return
            self._calls.put((connection, record))

    def _is_full(self, connection: TcpConnection) -> bool:
        """It does not take the replies that it has."""
        return connection.unsent_bytes >= self._limits.held_bytes

    def _watch(self, connection: TcpConnection) -> None:
        """Registers it for what it waits for now."""
        registered = self._connections.get(connection)
        if registered is None:
            return
        if not connection.is_open:
            self._drop(connection)
            return
        self._feed(connection)
        wanted = selectors.EVENT_READ if self._may_read(connection) else 0
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
        for connection in list(self._connections):
            is_owing = connection.unsent_bytes or not connection.splitter.is_between_records
            can_move = self._connections[connection] != 0
            if not is_owing or not can_move:
                connection.moved_s = now
            elif now - connection.moved_s > self._limits.stalled_s:
                _log.info("%s is stuck, and cut", connection.peer)
                self._drop(connection)
            else:
                self._watch(connection)

    def _drop(self, connection: TcpConnection) -> None:
        if self._connections.pop(connection):
            self._selector.unregister(connection.sock)
        if connection.over():
            self._program.closed(connection)


def _listen(address: str, port: int) -> socket.socket:
    is_v6 = ":" in address or (not address and socket.has_dualstack_ipv6())
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    try:
        listener = socket.create_server(
            (address, port),
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=is_v6 and not address,
        )
    except OSError as error:
        what = f"port {port} of {address or 'all addresses'}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"{what} is in use; take another one by --tcp PORT") from None
        raise LivedmaError(f"{what}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
