"""The server's side of RPC-over-RDMA: listens at a port, and serves a program to who connects.

Each connection has a window of its own with two pools: for Receives and replies, and for data.
Calls are worked on by threads, as far as no native program takes them (`set_native_program`).
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

from livedma._native.storage import Endpoint, Service, SlowCall
from livedma.errors import BudgetError, LimitError, LivedmaError, NoRoomError
from livedma.rdma import Device, QueuePair, cm
from livedma.rpc.message import Accepted, AcceptStatus, encode_reply
from livedma.rpc.pool_keeper import PoolKeeper
from livedma.rpc.rdma_memory import ConnectionMemory
from livedma.rpc.rdma_private import Inline, PrivateData, agree
from livedma.rpc.rdma_terms import Expected, Terms
from livedma.rpc.service import Network, Program, is_allowed

__all__ = ["Options", "RdmaConnection", "RdmaServer"]

_LOOK_S = 0.5  # so often threads look whether the server is closed
_ACCEPT_S = 5.0  # for a peer to confirm its connection
_ACCEPTING = 4  # at a time
_JOINED = 4  # data buffers that one RDMA WRITE or READ takes, at most: what is sent at once
_NO_MEMORY = (NoRoomError, BudgetError, LimitError, MemoryError, OSError)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Options:
    """How connections are served.

    `window_bytes` is what a connection may have at most, of which `mapped_bytes` (a quarter, if
    None) are memory from the start. `credits`: calls that a peer may have under way to begin with;
    `credits_max`: what they may be raised to. `message_bytes`: the longest call for Python whose
    parts have to be fetched; `gathered_bytes`: what such calls of a connection may take together.
    `stall_s`: a peer that takes no reply for so long is cut off. `idle_s`: so is one that says
    nothing for so long, since it may be gone without a word; one that lives connects again.
    """

    window_bytes: int = 64 << 20
    mapped_bytes: int | None = None
    buffer_bytes: int = 64 << 10
    inline_bytes: int = 4096
    credits: int = 64
    credits_max: int = 1024
    connections: int = 64
    workers: int = 4
    message_bytes: int = (1 << 20) + (64 << 10)
    gathered_bytes: int = 16 << 20
    stall_s: float = 60.0
    idle_s: float = 600.0
    remote_invalidation: bool = True
    spin_s: float = 50e-6

    @property
    def max_send(self) -> int:
        """Requests that a queue pair takes at a time."""
        return _ring(2 * self.credits_max)

    @property
    def max_recv(self) -> int:
        return _ring(self.credits_max)

    @property
    def terms(self) -> Terms:
        """What a connection gets, unless it was asked for."""
        mapped_bytes = self.window_bytes // 4 if self.mapped_bytes is None else self.mapped_bytes
        return Terms(self.window_bytes, mapped_bytes, self.credits)

    @property
    def completions(self) -> int:
        """That one connection may have at a time."""
        return self.max_send + self.max_recv


class NotAllowedError(LivedmaError):
    """The peer is none of those who may connect."""


class RdmaConnection:
    """A peer (`livedma.rpc.service.Connection`), with its memory and its levers."""

    kind: Literal["rdma"] = "rdma"

    def __init__(self, server: RdmaServer, request: cm.Request, terms: Terms) -> None:
        """Makes all it needs; NoRoomError and its like if that cannot be had."""
        self.options = options = server.options
        self.terms = terms
        self.number = next(_numbers)
        self.peer = request.peer
        self._own = PrivateData(
            options.inline_bytes, options.inline_bytes, options.remote_invalidation
        )
        self.inline: Inline = agree(self._own, PrivateData.decode(request.private_data))
        self._server = server
        self._calls_seen, self._heard_s = -1, time.monotonic()
        self._cm: cm.Connection | None = None
        self.unfinished = 2  # accepting it, and the endpoint: then its memory can go
        self.endpoint: Endpoint | None = None
        self._last_statistics: dict[str, Any] = {}
        self._pd = server.device.protection_domain()
        self.memory = ConnectionMemory(
            self._pd,
            window_bytes=terms.window_bytes,
            mapped_bytes=terms.mapped_bytes,
            inline_bytes=options.inline_bytes,
            buffer_bytes=options.buffer_bytes,
            credits_begin=terms.credits,
        )

    def accept(self, request: cm.Request) -> None:
        """Until the peer has confirmed; raises what `Request.accept` does."""
        options = self._server.options
        self._cm = request.accept(
            private_data=self._own.encode(),
            timeout=_ACCEPT_S,
            pd=self._pd,
            cq=self._server.cq,
            access=(),
            prepare=self._prepare,
            retire=lambda _: self.close(),
            max_send=options.max_send,
            max_recv=options.max_recv,
            max_send_sge=_JOINED,
            max_recv_sge=1,
            max_inline=0,
        )
        assert self.endpoint is not None
        self.endpoint.start()

    def _prepare(self, qp: QueuePair) -> None:
        """Receives are there before the peer may send; calls may come before it has confirmed."""
        options = self._server.options
        self.endpoint = Endpoint(
            self._server.service,
            qp,
            self.memory.receive_pool,
            self.memory.data_pool,
            number=self.number,
            credits=self.terms.credits,
            credits_max=options.credits_max,
            completions=options.completions,
            send_inline=self.inline.send_bytes,
            may_invalidate=self.inline.remote_invalidation,
            message_bytes=options.message_bytes,
            gathered_bytes=options.gathered_bytes,
            stall=options.stall_s,
            owner=self,
        )

    @property
    def is_open(self) -> bool:
        endpoint = self.endpoint
        return endpoint is not None and endpoint.is_open

    @property
    def is_silent(self) -> bool:
        """Its peer has confirmed it, and never sent anything."""
        is_accepted = self.unfinished == 1 and self.is_open
        return is_accepted and self.statistics()["calls"] == 0

    @property
    def credits(self) -> int:
        """Calls that the peer may have under way; may be raised and lowered at any time."""
        endpoint = self.endpoint
        return 0 if endpoint is None else endpoint.credits

    @credits.setter  # noqa: A003 - the specification's word
    def credits(self, value: int) -> None:
        if not 0 < value <= self._server.options.credits_max:
            raise ValueError(f"credits are 1 to {self._server.options.credits_max}, not {value}")
        endpoint = self.endpoint
        if endpoint is not None:
            if value > endpoint.credits:
                self.memory.make_ready_for(value)
                endpoint.credits = value
            else:
                endpoint.credits = value
                self.memory.make_ready_for(value)

    @property
    def credits_max(self) -> int:
        """What credits may be raised to."""
        return self._server.options.credits_max

    @property
    def server(self) -> str:
        """The address at which it came."""
        return self._server.device.address

    @property
    def qpns(self) -> tuple[int, int]:
        """Numbers of its queue pairs: the server's, the peer's; 0 as long as it is not there."""
        endpoint, connection = self.endpoint, self._cm
        return (
            0 if endpoint is None else endpoint.qp.number,
            0 if connection is None else connection.remote_qpn,
        )

    def moved(self, read_bytes: int, written_bytes: int) -> None:
        """A call that Python answers has read or written so much of files."""
        endpoint = self.endpoint
        if endpoint is not None:
            endpoint.moved(read_bytes, written_bytes)

    def statistics(self) -> dict[str, Any]:
        """What the endpoint counts: credits, calls, bytes, errors by kind; waits are (count, sum,
        longest, buckets), in ns."""
        endpoint = self.endpoint
        return self._last_statistics if endpoint is None else endpoint.statistics()

    def is_idle(self, now_s: float) -> bool:
        """Whether nothing has come for so long that it may go; to be asked now and then."""
        if self.endpoint is None:
            return False
        seen = self.endpoint.calls
        if seen != self._calls_seen:
            self._calls_seen, self._heard_s = seen, now_s
        return now_s - self._heard_s > self._server.options.idle_s

    def close(self) -> None:
        """Cuts it; any thread may. Its memory goes when nobody uses it any more."""
        endpoint, connection = self.endpoint, self._cm
        if endpoint is not None:
            endpoint.close()
        if connection is not None:
            with suppress(
                TimeoutError, ValueError
            ):  # told; or the device is closed, and all with it
                connection.disconnect(timeout=0)

    def _release(self) -> None:
        """Nothing of it is posted or being worked on."""
        if self._cm is not None:
            self._cm.close()
        self.memory.close()
        # They refer to this one, too: descriptors would stay until somebody looks for cycles.
        if self.endpoint is not None:
            self._last_statistics = self.endpoint.statistics()
        self._cm = self.endpoint = None


class RdmaServer:
    """Serves a program at a port of a device. A context manager, which closes it.

    `connections` are those that are open. `options` and `allow` may be replaced: they count for new
    connections. A device that closes closes its servers before.
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
        """allow: who may connect; nothing means everybody."""
        self.device = device
        self.port = port
        self.options = options or Options()
        self.refused = 0  # connections for which there was no memory, or no place
        #: who is expected from an address; everybody else gets what `options` say
        self.expect: Callable[[str], Expected | None] = lambda _: None
        #: are called with connections by which nothing comes any more, while all they counted is
        #: still there, and before they are gone from `connections`
        self.on_gone: list[Callable[[RdmaConnection], None]] = []
        #: a connection with so much memory is made in it; BudgetError: there is none for it
        self.admitting: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()
        self._program = program
        self.allow: Sequence[Network] = tuple(allow)
        self._lock = threading.Condition()
        self._connections: dict[int, RdmaConnection] = {}
        self._is_closing = False
        completions = self.options.completions * self.options.connections
        self.cq = device.completion_queue(completions)
        self.service = Service(device, self.cq, completions, self.options.spin_s)
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
        device.before_close.append(self.close)

    def set_native_program(self, capsule: object | None) -> None:
        """Who is shown calls before Python is: a capsule "ldma_program"."""
        self.service.set_program(capsule)

    @property
    def busy_ns(self) -> int:
        """Its threads handled calls, and packets, for so long. ValueError: it is closed."""
        busy_ns: int = self.service.counters["busy_ns"] + self.device.port_counters["busy_ns"]
        return busy_ns

    @property
    def connections(self) -> list[RdmaConnection]:
        with self._lock:
            return list(self._connections.values())

    def close(self) -> None:
        """Ends everything: no new connections, those that are open are cut, calls end."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        self._listener.close()
        for connection in self.connections:
            connection.close()
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
            except RuntimeError:  # it was shut down meanwhile
                request.reject()

    def _accept(self, request: cm.Request) -> None:
        expected = None
        try:
            if not is_allowed(request.peer, self.allow):
                raise NotAllowedError(f"{request.peer} may not connect")
            expected = self.expect(request.peer)
            connection = self._admit(request, expected)
        except (NotAllowedError, ValueError, *_NO_MEMORY) as error:
            self.refused += 1
            if expected is not None:
                expected.refused(str(error) or "there is no memory")
            request.reject()
            return
        if expected is not None:  # before its peer can say so
            expected.came(connection)
        why = ""
        try:
            connection.accept(request)
        except (LivedmaError, OSError, ValueError, TimeoutError) as error:
            connection.close()  # the peer has not confirmed, or is gone
            why = str(error) or "it was not confirmed"
        except BaseException:
            connection.close()
            why = "it failed"
            _report()
        if expected is not None and why:
            expected.refused(why)
        if connection.endpoint is None:
            self._finish(connection)
        if self._is_closing:
            connection.close()
        self._finish(connection)

    def _admit(self, request: cm.Request, expected: Expected | None) -> RdmaConnection:
        self._make_room()
        terms = None if expected is None else expected.terms
        terms = terms or self.options.terms
        with self.admitting(terms.mapped_bytes):
            connection = RdmaConnection(self, request, terms)
            with self._lock:
                self._connections[connection.number] = connection
        self._keeper.add(connection.memory.receive_pool)
        self._keeper.add(connection.memory.data_pool)
        return connection

    def _make_room(self) -> None:
        """Whoever has never called makes room for those who may, as over TCP."""
        with self._lock:
            if not self._is_closing and self._has_room():
                return
        silent = next((one for one in self.connections if one.is_silent), None)
        if silent is not None:
            silent.close()
            with self._lock:
                self._lock.wait_for(lambda: self._is_closing or self._has_room(), _ACCEPT_S)
                if not self._is_closing and self._has_room():
                    return
        raise NoRoomError(f"{self.options.connections} connections are enough")

    def _has_room(self) -> bool:
        return len(self._connections) < self.options.connections

    def _finish(self, connection: RdmaConnection) -> None:
        """One of what had to end did; the last lets the connection go."""
        with self._lock:
            connection.unfinished -= 1
            if connection.unfinished:
                return
        self._keeper.remove(connection.memory.receive_pool)
        self._keeper.remove(connection.memory.data_pool)
        last: list[Callable[[], None]] = [partial(gone, connection) for gone in self.on_gone]
        for work in (*last, connection._release):
            try:
                work()
            except Exception:
                _report()
        with self._lock:
            del self._connections[connection.number]
            self._lock.notify_all()

    def _reap(self) -> None:
        while not self.service.is_stopped:
            endpoint = self.service.next_over(_LOOK_S)
            if endpoint is not None:
                self._end(endpoint.owner)
            for connection in self.connections:
                # Its calls may take a while; the peer is told now.
                if not connection.is_open or connection.is_idle(time.monotonic()):
                    connection.close()

    def _end(self, connection: RdmaConnection) -> None:
        try:
            self._program.closed(connection)
        except Exception:
            _report()
        self._finish(connection)

    def _work(self) -> None:
        while not self.service.is_stopped:
            call = self.service.next_call(_LOOK_S)
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


def _ring(least: int) -> int:
    """Rings have as many places as a power of two."""
    return 1 << (least - 1).bit_length()


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"livedma-rpc-{name}", daemon=True)
    thread.start()
    return thread


def _report() -> None:
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
