# SPDX-License-Identifier: BSD-2-Clause
"""Finds and announces the queue pair, and its Q_Key, of a datagram service at a port."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import SidrRequest
from livedma.rdma.cm.futures import outcome, settle
from livedma.rdma.cm.link import ConnectError, UnreachableError
from livedma.rdma.cm.manager import Closed, Manager, manager
from livedma.rdma.device import Device
from livedma.rdma.queues import QueuePair

UDP_QKEY = 0x01234567  # librdmacm's


@dataclass(frozen=True)
class Service:
    """Says where a datagram service is: all that `post_send` needs."""

    address: str
    qpn: int
    qkey: int
    private_data: bytes


class Announcement:
    """Tells each peer that asks which queue pair serves a UDP port, until it is closed."""

    def __init__(
        self, manager: Manager, port: int, qpn: int, qkey: int, private_data: bytes
    ) -> None:
        self.port = port
        self._manager = manager
        self._answer = (qpn, qkey, private_data)
        self._cm = manager.listen(port, "UDP", self._on_event)

    def close(self) -> None:
        self._manager.unlisten(self._cm)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_event(self, event: events.Event | Closed) -> None:
        if isinstance(event, events.SidrRequested):
            qpn, qkey, private_data = self._answer
            with self._manager.engine() as (engine, now):
                engine.answer(event.request, now, qpn=qpn, qkey=qkey, private_data=private_data)


def announce(
    device: Device, port: int, qp: QueuePair, *, qkey: int = UDP_QKEY, private_data: bytes = b""
) -> Announcement:
    """Announces a UD queue pair and its Q_Key at a port."""
    messages.check_private_data("SIDR_REP", private_data)
    return Announcement(manager(device), port, qp.number, qkey, private_data)


def resolve(
    device: Device,
    address: str,
    port: int,
    *,
    private_data: bytes = b"",
    timeout: float | None = None,
) -> Service:
    """Asks the peer at the address which queue pair serves the UDP port.

    Raises ConnectError, UnreachableError, or TimeoutError after timeout seconds.
    """
    with _Resolution(manager(device), address, port, private_data) as answer:
        return answer.result(timeout)


async def resolve_async(
    device: Device, address: str, port: int, *, private_data: bytes = b""
) -> Service:
    """Does what `resolve` does, for asyncio."""
    with _Resolution(manager(device), address, port, private_data) as answer:
        return await outcome(answer)


class _Resolution:
    """Keeps a request under way; leaving its block cancels it."""

    def __init__(self, manager: Manager, address: str, port: int, private_data: bytes) -> None:
        self._manager = manager
        self._where = f"port {port} of {address}"
        self._answer: Future[Service] = Future()
        self._request: SidrRequest
        with manager.engine() as (engine, now):
            self._request = engine.resolve(address, port, now, private_data=private_data)
            manager.on_event(self._request, self._on_event)

    def __enter__(self) -> Future[Service]:
        return self._answer

    def __exit__(self, *_: object) -> None:
        if self._manager.is_closed:
            return
        with self._manager.engine() as (engine, _now):
            engine.cancel(self._request)
            self._manager.forget(self._request)

    def _on_event(self, event: events.Event | Closed) -> None:
        match event:
            case events.SidrResolved(status=messages.SIDR_VALID):
                service = Service(self._request.peer, event.qpn, event.qkey, event.private_data)
                settle(self._answer, service)
            case events.SidrResolved():
                settle(self._answer, ConnectError(f"{self._where}: {event.status}"))
            case events.SidrUnreachable():
                settle(self._answer, UnreachableError(f"{self._request.peer} does not answer"))
            case _:
                settle(self._answer, ConnectError("the device was closed"))
