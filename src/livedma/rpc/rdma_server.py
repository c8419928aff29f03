# SPDX-License-Identifier: BSD-2-Clause
"""Serves RPC over RDMA: it listens at a port, and serves a program to its peers.

Each connection has a window of its own with two pools: for Receives and replies, and for data.
Threads serve the calls that no native program takes (`set_native_program`); one of them is kept for
control traffic, so that a client whose calls keep all others busy delays no other session.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Self

from livedma._native.storage import Service, SlowCall
from livedma.errors import BudgetError, LimitError, LivedmaError, NoRoomError
from livedma.rdma import Device, cm
from livedma.rpc.connection_log import ConnectionLog, Peer
from livedma.rpc.message import Accepted, AcceptStatus, encode_reply
from livedma.rpc.names import TransportKind
from livedma.rpc.pool_keeper import PoolKeeper
from livedma.rpc.rdma_connection import RdmaConnection
from livedma.rpc.rdma_options import Options
from livedma.rpc.rdma_terms import Expected, Terms
from livedma.rpc.refusal import NotAllowedError, encode_refusal, not_allowed, reads_refusals
from livedma.rpc.service import Network, Program, is_allowed
from livedma.wire.words import amount

__all__ = ["Options", "RdmaConnection", "RdmaServer"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.5  # how often threads look whether the server is closed
_ROOM_S = 5.0  # time for a silent connection to go
_ACCEPTING = 4  # connections that are accepted at a time
_LEAST_MOST = 4  # connections beyond the budget
_ENDS = "the server ends"
_NO_MEMORY = (NoRoomError, BudgetError, LimitError, MemoryError, OSError)


class RdmaServer:
    """Serves a program at a port of a device. As a context manager it closes at the end.

    `connections` are those that are open. `options` and `allow` may be replaced: they count for new
    connections. A device closes its servers before itself.
    """

    def __init__(
        self,
        device: Device,
        port: int,
        program: Program,
        options: Options | None = None,
        *,
        allow: Sequence[Network] = (),
    ) -> None:
        """Starts to listen. allow: the networks that may connect; empty: all may."""
        self.device = device
        self.port = port
        self.options = options or Options()
        self.refused = 0  # connections for which there was no memory, or no place
        self.log = ConnectionLog()
        #: returns what is expected from a peer's address; other peers get what `options` say
        self.expect: Callable[[str], Expected | None] = lambda _: None
        #: called with a connection on which nothing comes any more, while its counters are still
        #: there, and before `connections` loses it
        self.on_gone: list[Callable[[RdmaConnection], None]] = []
        #: so many bytes are mapped in it, for a new connection or an old one; it raises BudgetError
        #: if fewer are left
        self.admitting: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()
        self._program = program
        self.allow: Sequence[Network] = tuple(allow)
        self._lock = threading.Condition()
        self._connections: dict[int, RdmaConnection] = {}
        self._making_least = threading.Lock()
        self._is_closing = False
        self._has_told_pages = False
        completions = self.options.completions * self.options.connections
        self.cq = device.completion_queue(completions)
        has_reserve = self.options.reserve > 0
        self.service = Service(
            device.engine, self.cq, completions, self.options.spin_s, has_reserve=has_reserve
        )
        self._keeper = PoolKeeper()
        self._accepting = ThreadPoolExecutor(_ACCEPTING, "livedma-rpc-accept")
        try:
            self._listener = cm.listen(device, port)
        except BaseException:
            self.service.stop()
            self._keeper.close()
            self.cq.close()
            raise
        self._threads = [
            _thread("listen", self._listen),
            _thread("over", self._reap),
            *(_thread(f"worker-{i}", self._work) for i in range(self.options.workers)),
        ]
        if has_reserve:
            self._threads.append(_thread("control", partial(self._work, only_control=True)))
        device.before_close.append(self.close)

    def set_native_program(self, capsule: object | None) -> None:
        """Sets the native program that gets calls before Python does: a capsule "ldma_program"."""
        self.service.set_program(capsule)

    @property
    def busy_ns(self) -> int:
        """Is the time that its threads spent on calls and packets. ValueError: it is closed."""
        busy_ns: int = self.service.counters["busy_ns"] + self.device.port_counters["busy_ns"]
        return busy_ns

    @property
    def is_closing(self) -> bool:
        """Tells whether `close` was called, perhaps by another thread."""
        return self._is_closing

    @property
    def connections(self) -> list[RdmaConnection]:
        with self._lock:
            return list(self._connections.values())

    def wait_until_gone(self, connection: RdmaConnection, within_s: float) -> bool:
        """Waits until a connection that was cut has freed its memory. False: it takes longer."""
        with self._lock:
            return self._lock.wait_for(
                lambda: self._connections.get(connection.number) is not connection, within_s
            )

    def close(self) -> None:
        """Stops listening, cuts all connections, and waits until their calls have ended."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        self._listener.close()
        for connection in self.connections:
            connection.close(_ENDS)
        self._accepting.shutdown()
        with self._lock:
            self._lock.wait_for(lambda: not self._connections)
        self.service.stop()
        for thread in self._threads:
            thread.join()
        self._keeper.close()
        self.cq.close()
        if self.close in self.device.before_close:
            self.device.before_close.remove(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        for request in self._listener:
            try:
                self._accepting.submit(self._accept, request)
            except RuntimeError:  # the pool was shut down meanwhile
                request.reject()  # without a reason: the next server may take it

    def _accept(self, request: cm.Request) -> None:
        expected = None
        try:
            if not is_allowed(request.peer, self.allow):
                raise not_allowed(request.peer)
            expected = self.expect(request.peer)
            connection = self._admit(request, expected)
        except (NotAllowedError, ValueError, *_NO_MEMORY) as error:
            self._refuse(request, expected, error)
            return
        if expected is not None:  # before its peer can call
            expected.came(connection)
        why = ""
        try:
            connection.accept(request)
        except (LivedmaError, OSError, ValueError, TimeoutError) as error:
            why = str(error) or "the peer did not confirm it in time"
        except BaseException:
            why = "the server failed"
            _report()
        if why:
            connection.close()  # the peer has not confirmed, or is gone
            self._refuse(request, expected, LivedmaError(why))
        else:
            self.log.accepted(connection.number, _peer(connection))
        if connection.endpoint is None:
            self._finish(connection)
        if self._is_closing:
            connection.close(_ENDS)
        self._finish(connection)

    def _refuse(self, request: cm.Request, expected: Expected | None, error: Exception) -> None:
        """Tells the peer why, unless it was answered already. If the server ends, no reason is
        told: another server may take its place, and the peer should try again.
        """
        self.refused += 1
        why = str(error) or "there is no memory"
        if expected is not None:
            expected.refused(why)
        self.log.refused(Peer(request.peer, request.peer_port, TransportKind.RDMA), why)
        if request.is_waiting:
            is_lasting = isinstance(error, NotAllowedError)
            told = b"" if self._is_closing else encode_refusal(why, is_lasting=is_lasting)
            with suppress(ValueError):  # the peer has given up meanwhile
                request.reject(told)

    def _admit(self, request: cm.Request, expected: Expected | None) -> RdmaConnection:
        self._make_room()
        terms = None if expected is None else expected.terms
        terms = terms or self.options.terms
        try:
            length, pins = self.options.bytes_for(terms), self.options.kind.pins
            with self.admitting(length):
                if pins is not None:
                    pins.check(request.peer, length)
                return self._made(request, terms)
        except BudgetError as error:
            if expected is not None or reads_refusals(request.private_data):
                raise
            return self._made_least(request, error)

    def _made_least(self, request: cm.Request, error: BudgetError) -> RdmaConnection:
        """Makes a connection beyond the budget for a peer that cannot read why it is refused: its
        mount would try again for minutes. NFS refuses it a session, which ends the mount.
        """
        with self._making_least:
            if sum(one.is_least for one in self.connections) >= _LEAST_MOST:
                raise error
            connection = self._made(request, self.options.least_terms)
            connection.is_least = True
        self.refused += 1
        why = f"{error}; connection {connection.number} has the least, and new clients no session"
        self.log.refused(Peer(request.peer, request.peer_port, TransportKind.RDMA), why)
        return connection

    def _made(self, request: cm.Request, terms: Terms) -> RdmaConnection:
        connection = RdmaConnection(self, request, terms)
        with self._lock:
            self._connections[connection.number] = connection
        self._tell_pages(connection)
        self._keeper.add(connection.memory.receive_pool)
        self._keeper.add(connection.memory.data_pool)
        return connection

    def _tell_pages(self, connection: RdmaConnection) -> None:
        """Logs once that large pages were wanted and small ones came."""
        why = connection.memory.why_small_pages
        if why and not self._has_told_pages:
            self._has_told_pages = True
            _log.warning("DMA memory is in pages of 4 KiB, not 2 MiB: %s", why)

    def _make_room(self) -> None:
        """Cuts a connection that never called if there is no place for a new one, as over TCP."""
        with self._lock:
            if not self._is_closing and self._has_room():
                return
        silent = next((one for one in self.connections if one.is_silent), None)
        if silent is not None:
            silent.close("it never called, and another connection took its place")
            with self._lock:
                self._lock.wait_for(lambda: self._is_closing or self._has_room(), _ROOM_S)
                if not self._is_closing and self._has_room():
                    return
        room = amount(self.options.connections, "connection")
        raise NoRoomError(f"it has {room}, and takes no more")

    def _has_room(self) -> bool:
        return len(self._connections) < self.options.connections

    def _finish(self, connection: RdmaConnection) -> None:
        """Counts the end of accepting or of the endpoint; after both, releases the connection."""
        with self._lock:
            connection.unfinished -= 1
            if connection.unfinished:
                return
        self._keeper.remove(connection.memory.receive_pool)
        self._keeper.remove(connection.memory.data_pool)
        last: list[Callable[[], None]] = [partial(gone, connection) for gone in self.on_gone]
        last += [partial(self._tell_left, connection), connection.release]
        for work in last:
            try:
                work()
            except Exception:
                _report()
        with self._lock:
            del self._connections[connection.number]
            self._lock.notify_all()

    def _tell_left(self, connection: RdmaConnection) -> None:
        if connection.accepted_s is None:
            return
        seconds = time.monotonic() - connection.accepted_s
        calls = connection.statistics().get("calls", 0)
        self.log.left(connection.number, _peer(connection), connection.why_left, seconds, calls)

    def _reap(self) -> None:
        while not self.service.is_stopped:
            endpoint = self.service.next_ended(_LOOK_S)
            if endpoint is not None:
                self._end(endpoint.owner)
            for connection in self.connections:
                # Its calls may take a while to end; this tells the peer now.
                if not connection.is_open:
                    connection.close()
                elif connection.is_idle(time.monotonic()):
                    connection.close(f"the peer was silent for {self.options.idle_s:g} s")
            self.log.tick()

    def _end(self, connection: RdmaConnection) -> None:
        try:
            self._program.closed(connection)
        except Exception:
            _report()
        self._finish(connection)

    def _work(self, *, only_control: bool = False) -> None:
        while not self.service.is_stopped:
            call = self.service.next_call(_LOOK_S, only_control=only_control)
            if call is not None:
                self._serve(call)

    def _serve(self, call: SlowCall) -> None:
        connection: RdmaConnection = call.endpoint.owner
        try:
            parts = self._program(connection, call.message)
        except Exception:
            _report()
            call.reply([encode_reply(Accepted(call.xid, AcceptStatus.SYSTEM_ERR))])
            return
        if parts is None:
            call.drop()
        else:
            call.reply(parts)


def _peer(connection: RdmaConnection) -> Peer:
    return Peer(connection.peer, connection.port, TransportKind.RDMA)


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"livedma-rpc-{name}", daemon=True)
    thread.start()
    return thread


def _report() -> None:
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
