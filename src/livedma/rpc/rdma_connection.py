# SPDX-License-Identifier: BSD-2-Clause
"""Runs a server's end of one connection over RDMA: its memory, its endpoint, and its levers."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from livedma._native.storage import Endpoint
from livedma.errors import NoRoomError
from livedma.rdma import QueuePair, cm
from livedma.rpc.names import TransportKind
from livedma.rpc.rdma_memory import ConnectionMemory
from livedma.rpc.rdma_private import Inline, PrivateData, agree
from livedma.rpc.rdma_terms import Terms
from livedma.rpc.service import connection_numbers

if TYPE_CHECKING:
    from livedma.rpc.rdma_server import RdmaServer

__all__ = ["RdmaConnection"]

_ACCEPT_S = 5.0  # time for a peer to confirm its connection
_MAKE_S = 30.0  # time to map a connection's memory: its peer waits no longer
_LOOK_S = 0.001  # between two looks whether all calls are answered
_JOINED = 4  # the most data buffers that one RDMA WRITE or READ takes


class RdmaConnection:
    """Implements `livedma.rpc.service.Connection` over RDMA, with its memory and its levers."""

    kind = TransportKind.RDMA

    def __init__(self, server: RdmaServer, request: cm.Request, terms: Terms) -> None:
        """Maps its memory. Raises NoRoomError or the like if there is not enough."""
        self.options = options = server.options
        self.terms = terms
        #: it has the least memory, beyond the budget, until it is extended
        self.is_least = False
        self.number = next(connection_numbers)
        self.peer = request.peer
        self.port: int = request.peer_port  #: the peer's, as the peer says; 0: it says none
        self.accepted_s: float | None = None  #: when its peer confirmed it
        self._why_closed = ""
        self._own = PrivateData(
            options.inline_bytes, options.inline_bytes, options.remote_invalidation
        )
        self.inline: Inline = agree(self._own, PrivateData.decode(request.private_data))
        self._server = server
        self._calls_seen, self._heard_s = -1, time.monotonic()
        self._cm: cm.Connection | None = None
        self.unfinished = 2  # both accepting it and the endpoint: at 0 its memory can go
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
            reserve=options.reserve,
            kind=options.kind,
            tenant=self.peer,
            go_on=partial(self._go_on, time.monotonic() + _MAKE_S),
            admitting=lambda length: server.admitting(length),
        )

    def _go_on(self, until_s: float) -> None:
        """Raises NoRoomError if the server ends or mapping takes too long: no more is mapped."""
        if self._server.is_closing:
            raise NoRoomError("the server ends")
        if time.monotonic() > until_s:
            raise NoRoomError(f"its memory could not be mapped in {_MAKE_S:g} s")

    def accept(self, request: cm.Request) -> None:
        """Accepts the peer, and waits until it has confirmed. Raises what `Request.accept` does."""
        options = self._server.options
        self._cm = request.accept(
            private_data=self._own.encode(),
            timeout=_ACCEPT_S,
            pd=self._pd,
            cq=self._server.cq,
            access=(),
            prepare=self._prepare,
            retire=lambda _: self.close("the device was closed"),
            max_send=options.max_send,
            max_recv=options.max_recv,
            max_send_sge=_JOINED,
            max_recv_sge=1,
            max_inline=0,
        )
        assert self.endpoint is not None
        self.accepted_s = time.monotonic()
        self.endpoint.start()

    def _prepare(self, qp: QueuePair) -> None:
        """Makes the endpoint and its Receives before the peer may send: calls may come before the
        peer confirms.
        """
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
        """Tells whether its peer has confirmed it, and never made a call."""
        is_accepted = self.unfinished == 1 and self.is_open
        return is_accepted and self.statistics()["calls"] == 0

    @property
    def credits(self) -> int:
        """Is the number of calls that the peer may have under way; it may be set at any time."""
        endpoint = self.endpoint
        return 0 if endpoint is None else endpoint.credits

    @credits.setter  # noqa: A003 - the specification's word
    def credits(self, value: int) -> None:
        self._check_credits(value)
        endpoint = self.endpoint
        if endpoint is not None:
            if value > endpoint.credits:
                self.memory.make_ready_for(value)
                endpoint.credits = value
            else:
                endpoint.credits = value
                self.memory.make_ready_for(value)

    def extend(self, length: int, credits_wanted: int = 0) -> int:
        """Maps `length` bytes more for data, and raises credits to `credits_wanted` if they are
        fewer. Returns and raises what `ConnectionMemory.extend` does.
        """
        before = self.credits
        credits_wanted = max(before, credits_wanted)
        self._check_credits(credits_wanted)
        ret = self.memory.extend(length, credits_wanted)
        try:
            self.credits = credits_wanted
        except BaseException:
            self.memory.shrink(ret)
            self.memory.make_ready_for(before)
            raise
        self.is_least = False
        return ret

    def _check_credits(self, value: int) -> None:
        if not 0 < value <= self.credits_max:
            raise ValueError(f"credits are 1 to {self.credits_max}, not {value}")

    @property
    def credits_max(self) -> int:
        """Is the greatest number of credits that it may get."""
        return self._server.options.credits_max

    @property
    def server(self) -> str:
        """Is the server's address to which the peer connected."""
        return self._server.device.address

    @property
    def qpns(self) -> tuple[int, int]:
        """Holds the numbers of its queue pairs: the server's, the peer's; 0: it is not there."""
        endpoint, connection = self.endpoint, self._cm
        return (
            0 if endpoint is None else endpoint.qp.number,
            0 if connection is None else connection.remote_qpn,
        )

    def moved(self, read_bytes: int, written_bytes: int, storage_ns: int) -> None:
        """Counts what a call that Python answers has read or written in files. Its time in the
        store counts for its session alone: the connection counts accesses that hold a DMA buffer.
        """
        endpoint = self.endpoint
        if endpoint is not None:
            endpoint.moved(read_bytes, written_bytes)

    def statistics(self) -> dict[str, Any]:
        """Returns what the endpoint counts: credits, calls, bytes, errors by kind; waits are
        (count, sum, longest, buckets), in ns.
        """
        endpoint = self.endpoint
        return self._last_statistics if endpoint is None else endpoint.statistics()

    def is_idle(self, now_s: float) -> bool:
        """Tells whether no call has come for `idle_s`. The server has to ask now and then."""
        if self.endpoint is None:
            return False
        seen = self.endpoint.calls
        if seen != self._calls_seen:
            self._calls_seen, self._heard_s = seen, now_s
        return now_s - self._heard_s > self._server.options.idle_s

    @property
    def why_left(self) -> str:
        """Says why it has ended, or is about to."""
        if self._why_closed:
            return self._why_closed
        if self._cm is not None and self._cm.is_ended_by_peer:
            return "the peer disconnected"
        if self.statistics().get("errors", {}).get("stalled"):
            return f"the peer took no reply for {self.options.stall_s:g} s"
        return "the peer broke off, or does not answer any more"

    def drain(self, within_s: float) -> float:
        """Takes no further call, and waits up to `within_s` until those under way are answered.
        Their client repeats what was dropped on its next connection. Returns when the last reply
        left, by the monotonic clock; without one, now. `close` comes next.
        """
        endpoint = self.endpoint
        begun_s = time.monotonic()
        if endpoint is None:
            return begun_s
        endpoint.drain()
        while endpoint.is_open and time.monotonic() < begun_s + within_s:
            seen = endpoint.statistics()
            if not seen["in_progress"] and not seen["replying"]:
                break
            time.sleep(_LOOK_S)
        return endpoint.replied_ns / 1e9 or time.monotonic()

    def close(self, why: str = "the server cut it") -> None:
        """Cuts it; any thread may call this. Its memory goes when nothing uses it any more.

        why: for the log, unless it has ended for another reason already.
        """
        endpoint, connection = self.endpoint, self._cm
        if self.is_open and not (connection is not None and connection.is_ended_by_peer):
            self._why_closed = self._why_closed or why
        if endpoint is not None:
            endpoint.close()
        if connection is not None:
            # This tells the peer. If the device is closed, the connection is, too.
            with suppress(TimeoutError, ValueError):
                connection.disconnect(timeout=0)

    def wait_until_gone(self, within_s: float) -> bool:
        """Waits until its memory is free. Returns False if that takes longer."""
        return self._server.wait_until_gone(self, within_s)

    def release(self) -> None:
        """Frees its memory, once nothing of it is posted or being worked on."""
        if self._cm is not None:
            self._cm.close()
        self.memory.close()
        # Both refer to this object, too: descriptors would stay until the garbage collector runs.
        if self.endpoint is not None:
            self._last_statistics = self.endpoint.statistics()
        self._cm = self.endpoint = None
