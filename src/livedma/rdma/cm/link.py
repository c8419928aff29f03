# SPDX-License-Identifier: BSD-2-Clause
"""Offers a connection to its user: a queue pair, and the peer that has the other end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Self, TypedDict, Unpack

from livedma._native.rdma import SharedReceives
from livedma.errors import LivedmaError
from livedma.rdma.cm import connection as connection_state
from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import State
from livedma.rdma.cm.futures import outcome, settle
from livedma.rdma.cm.manager import Closed, Manager
from livedma.rdma.memory import ProtectionDomain
from livedma.rdma.queues import CompletionQueue, QueuePair
from livedma.wire.cm import REASONS

MAX_RD_ATOMIC = 16  # READs and atomics that the device has open at a time
DEPTH = 32  # requests of a direction, unless told otherwise: an idle connection is small
_RIGHTS = ("remote_read", "remote_write", "remote_atomic")
_STALE_SECONDS = 0.2
_FINISHED = (State.DREQ_SENT, State.TIMEWAIT, State.CLOSED)


class ConnectError(LivedmaError):
    """Reports that the connection could not be made, or has ended."""


class UnreachableError(ConnectError):
    """Reports that the peer does not answer."""


class RejectedError(ConnectError):
    """Reports that the peer refused the connection; `reason` is that of the REJ, 28 if its user
    refused.
    """

    def __init__(self, peer: str, reason: int, private_data: bytes = b"") -> None:
        super().__init__(f"{peer} rejected the connection: {REASONS.get(reason, reason)}")
        self.reason = reason
        self.private_data = private_data


class Setup(TypedDict, total=False):
    """Holds the options of a connection's queue pair; every one has a default."""

    pd: ProtectionDomain
    cq: CompletionQueue  # of both directions, unless there is a recv_cq
    recv_cq: CompletionQueue
    srq: SharedReceives
    access: Iterable[str]  # what the peer may do with regions that allow it
    prepare: Callable[[QueuePair], object]  # called when Receives can be posted
    retire: Callable[[QueuePair], object]  # called, if prepare was, before the queue pair closes
    max_send: int
    max_recv: int
    max_send_sge: int
    max_recv_sge: int
    max_inline: int
    responder_resources: int  # READs and atomics of the peer at a time
    initiator_depth: int  # READs and atomics of this side at a time
    retry_count: int  # of the active side: both have to use it
    rnr_retry_count: int  # the peer's retries when no Receive is posted; 7: no limit
    min_rnr_timer: int  # code of the time that the peer waits before such a retry


_DONE: Future[None] = Future()
_DONE.set_result(None)
_QP_OPTIONS = ("srq", "max_send", "max_recv", "max_send_sge", "max_recv_sge", "max_inline")


class Connection:
    """Represents a connection, made by `connect` or `Request.accept`. As a context manager it
    closes itself.

    `qp` is ready to use. Its completions are in `cq` (and `recv_cq`); `pd` makes the regions that
    it may use. `private_data` is what the peer sent along, padded with zeros.
    """

    def __init__(self, manager: Manager, transport: str, setup: Setup) -> None:
        self.device = manager.device
        self.pd = setup.get("pd") or self.device.protection_domain()
        self._own_cq = None if "cq" in setup else self._make_cq(setup)
        self.cq = setup["cq"] if self._own_cq is None else self._own_cq
        self.recv_cq = setup.get("recv_cq", self.cq)
        self.private_data = b""
        self._manager = manager
        self._setup = setup
        self._state: connection_state.Connection | None = None
        self._ready: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._is_closed = self._is_prepared = False
        self.is_ended_by_peer = False  #: the peer has said that it ends the connection
        init: dict[str, Any] = {"max_send": DEPTH, "max_recv": DEPTH, "max_recv_sge": 2}
        init |= {key: setup[key] for key in _QP_OPTIONS if key in setup}  # type: ignore[literal-required]
        self.qp = self.pd.queue_pair(transport, self.cq, self.recv_cq, **init)
        try:
            self.qp.modify("INIT", access=tuple(setup.get("access", _RIGHTS)))
            if "prepare" in setup:
                setup["prepare"](self.qp)
            self._is_prepared = True
        except BaseException:
            self._free()
            raise

    def _be_ready(self) -> None:
        """Wakes the calls that wait for the connection. Later ones share one finished future."""
        settle(self._ready, None)
        self._ready = _DONE

    def _make_cq(self, setup: Setup) -> CompletionQueue:
        depth = setup.get("max_send", DEPTH) + setup.get("max_recv", DEPTH)
        return self.device.completion_queue(depth)

    @property
    def peer(self) -> str:
        return self._cm.peer

    @property
    def path_mtu(self) -> int:
        return self._cm.path_mtu

    @property
    def remote_qpn(self) -> int:
        """Is the number of the peer's queue pair."""
        return self._cm.remote_qpn

    @property
    def is_established(self) -> bool:
        return self._cm.state is State.ESTABLISHED

    @property
    def responder_resources(self) -> int:
        """Counts the READs and atomics of the peer that may be open at this side, as negotiated."""
        return self._cm.responder_resources

    @property
    def initiator_depth(self) -> int:
        """Counts the READs and atomics that this side may have open at the peer, as negotiated."""
        return self._cm.initiator_depth

    def disconnect(self, private_data: bytes = b"", timeout: float | None = None) -> None:
        """Ends the connection and waits until the peer knows, or does not answer.

        What is posted completes as flushed, as with librdmacm.
        """
        self._begin_end(private_data)
        self._ended.result(timeout)

    async def disconnect_async(self, private_data: bytes = b"") -> None:
        self._begin_end(private_data)
        await self.wait_disconnected_async()

    def wait_disconnected(self, timeout: float | None = None) -> bool:
        """Waits until either side has ended the connection; returns False after timeout seconds."""
        try:
            self._ended.result(timeout)
        except TimeoutError:
            return False
        return True

    async def wait_disconnected_async(self) -> None:
        """Waits until either side has ended the connection, for asyncio."""
        await outcome(self._ended)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Waits until both sides agree. Raises ConnectError if they do not, or TimeoutError."""
        self._ready.result(timeout)

    async def wait_ready_async(self) -> None:
        """Waits until both sides agree, for asyncio."""
        await outcome(self._ready)

    def close(self) -> None:
        """Ends the connection, without waiting for the peer, and closes its queue pair."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(ValueError):  # the device is closed, and all that was made on it
            self._begin_end(b"")
        self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def _cm(self) -> connection_state.Connection:
        assert self._state is not None
        return self._state

    def _begin_end(self, private_data: bytes) -> None:
        with self._manager.engine() as (engine, now):
            if self._state is None:
                return
            is_over = self._state.state in _FINISHED
            engine.disconnect(self._state, now, private_data)
            if not is_over:
                self._stop()
            settle(self._ready, ConnectError(f"the connection with {self.peer} was closed"))
            if self._state.state is not State.DREQ_SENT:
                settle(self._ended, None)  # the peer was not asked: no answer will come

    def _stop(self) -> None:
        """Moves the queue pair to ERR: what is posted is flushed."""
        with contextlib.suppress(ValueError, OSError):  # its user may have closed or reset it
            self.qp.modify("ERR")

    def _free(self) -> None:
        if self._is_prepared and "retire" in self._setup:
            self._setup["retire"](self.qp)
        self.qp.close()
        if self._own_cq is not None:
            with contextlib.suppress(OSError):  # a thread or another queue pair uses it
                self._own_cq.close()
        # A dead peer leaves the DREQ unanswered for long; the user's objects must not live as long.
        self._setup = {}

    def _to_rtr(self) -> None:
        cm = self._cm
        self.qp.modify(
            "RTR",
            mtu=cm.path_mtu,
            dst=cm.peer,
            dest_qp=cm.remote_qpn,
            rq_psn=cm.rq_psn,
            max_dest_rd_atomic=cm.responder_resources,
            min_rnr_timer=self._setup.get("min_rnr_timer", 12),
        )

    def _to_rts(self) -> None:
        cm = self._cm
        self.qp.modify(
            "RTS",
            sq_psn=cm.sq_psn,
            max_rd_atomic=cm.initiator_depth,
            timeout=cm.ack_timeout,
            retry_count=cm.retry_count,
            rnr_retry=cm.rnr_retry_count,
        )

    def _fail(self, error: Exception) -> None:
        self._stop()
        settle(self._ready, error)
        settle(self._ended, None)

    def _on_event(self, event: events.Event | Closed) -> None:
        match event:
            case events.Rejected():
                self._fail(RejectedError(self.peer, event.reason, event.private_data))
            case events.Unreachable():
                self._fail(UnreachableError(f"{self.peer} does not answer"))
            case events.Disconnected():
                self.is_ended_by_peer = True
                self._fail(ConnectError(f"{self.peer} ended the connection"))
            case Closed():
                self._fail(ConnectError(f"the device at {self.device.address} was closed"))
            case events.TimewaitExit():
                self._fail(ConnectError(f"the connection with {self.peer} was closed"))
            case _:
                raise AssertionError(f"{event} is nothing that a connection is told")


class ActiveConnection(Connection):
    """Asks for the connection."""

    def __init__(
        self,
        manager: Manager,
        transport: str,
        setup: Setup,
        *,
        address: str,
        port: int,
        path_mtu: int,
        private_data: bytes,
    ) -> None:
        super().__init__(manager, transport, setup)
        self._transport = transport
        self._address = address
        self._port = port
        self._request_data = private_data
        self._stale_left = 2
        self._is_pausing = False
        try:
            self._ask(path_mtu)
        except BaseException:
            self._free()
            raise

    def _ask(self, path_mtu: int) -> None:
        setup = self._setup
        with self._manager.engine() as (engine, now):
            self._state = engine.connect(
                self._address,
                self._port,
                self.qp.number,
                now,
                path_mtu=path_mtu,
                transport=self._transport,
                responder_resources=setup.get("responder_resources", MAX_RD_ATOMIC),
                initiator_depth=setup.get("initiator_depth", MAX_RD_ATOMIC),
                retry_count=setup.get("retry_count", 7),
                rnr_retry_count=setup.get("rnr_retry_count", 7),
                srq="srq" in setup,
                private_data=self._request_data,
            )
            self._manager.on_event(self._state, self._on_event)

    def _ask_if_wanted(self, path_mtu: int) -> None:
        self._is_pausing = False
        if self._ready.done():
            return
        try:
            self._ask(path_mtu)
        except (ValueError, LivedmaError) as error:
            self._fail(error)

    def _on_event(self, event: events.Event | Closed) -> None:
        about = getattr(event, "connection", None)
        if about is not None and about is not self._state:
            return  # it is about an earlier attempt
        match event:
            case events.ConnectResponse():
                self._complete(event)
            case events.Rejected() if self._asks_again(event):
                pass
            case events.TimewaitExit() if self._is_pausing:
                pass
            case _:
                super()._on_event(event)

    def _complete(self, event: events.ConnectResponse) -> None:
        self.private_data = event.private_data
        with self._manager.engine() as (engine, now):
            try:
                self._to_rtr()
                self._to_rts()
            except (ValueError, OSError) as error:
                engine.reject(event.connection, now)
                self._fail(ConnectError(f"the queue pair cannot be connected: {error}"))
                return
            engine.confirm(event.connection, now)
        self._be_ready()

    def _asks_again(self, event: events.Rejected) -> bool:
        """Asks again after some rejections, and returns whether it does.

        It uses the MTU that the peer can do, or waits until the peer has ended a connection that a
        restart of this side left.
        """
        cm = self._cm
        mtu = 128 << event.info[0] if len(event.info) == 1 and event.info[0] <= 5 else 0
        if event.reason == messages.INVALID_PATH_MTU and 256 <= mtu < cm.path_mtu:
            self._ask(mtu)
        elif event.reason == messages.STALE_CONNECTION and self._stale_left:
            self._stale_left -= 1
            self._is_pausing = True
            self._manager.later(_STALE_SECONDS, lambda: self._ask_if_wanted(cm.path_mtu))
        else:
            return False
        return True


class PassiveConnection(Connection):
    """Answers a peer that asked for the connection."""

    def __init__(
        self,
        manager: Manager,
        request: connection_state.Connection,
        private_data: bytes,
        reply_data: bytes,
        **setup: Unpack[Setup],
    ) -> None:
        super().__init__(manager, request.transport, setup)
        self.private_data = private_data
        self._state = request
        try:
            with manager.engine() as (engine, now):
                # What may fail here comes first: once accepted, the peer has a connection.
                wanted = setup.get("responder_resources", MAX_RD_ATOMIC)
                request.responder_resources = min(request.responder_resources, wanted)
                self._to_rtr()
                engine.accept(
                    request,
                    self.qp.number,
                    now,
                    responder_resources=wanted,
                    initiator_depth=setup.get("initiator_depth", MAX_RD_ATOMIC),
                    rnr_retry_count=setup.get("rnr_retry_count", 7),
                    srq="srq" in setup,
                    private_data=reply_data,
                )
                manager.on_event(request, self._on_event)
                manager.watch(request, self.qp)
        except BaseException:
            self._free()
            raise

    def _on_event(self, event: events.Event | Closed) -> None:
        if not isinstance(event, events.Established):
            super()._on_event(event)
            return
        try:
            self._to_rts()
        except (ValueError, OSError) as error:
            self._fail(ConnectError(f"the queue pair cannot be connected: {error}"))
            self._begin_end(b"")
            return
        self._be_ready()
