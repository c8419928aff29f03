# SPDX-License-Identifier: BSD-2-Clause
"""Offers users the calls by which they connect, listen and answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Self, Unpack

from livedma.opening import enterable
from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    State,
)
from livedma.rdma.cm.futures import Mailbox, MailboxClosed
from livedma.rdma.cm.link import (
    ActiveConnection,
    ConnectError,
    Connection,
    PassiveConnection,
    Setup,
)
from livedma.rdma.cm.manager import Closed, Manager, manager
from livedma.rdma.device import Device


def connect(
    device: Device,
    address: str,
    port: int,
    *,
    timeout: float | None = None,
    private_data: bytes = b"",
    transport: str = "RC",
    path_mtu: int | None = None,
    **setup: Unpack[Setup],
) -> Connection:
    """Connects to the listener at an address and port.

    Raises RejectedError, UnreachableError, or TimeoutError after timeout seconds. Without a
    timeout it asks as often as Linux does, for more than a minute.
    """
    connection = _start(device, address, port, private_data, transport, path_mtu, setup)
    return _when_ready(connection, timeout)


@enterable
async def connect_async(
    device: Device,
    address: str,
    port: int,
    *,
    private_data: bytes = b"",
    transport: str = "RC",
    path_mtu: int | None = None,
    **setup: Unpack[Setup],
) -> Connection:
    """Connects, for asyncio: await it, or enter it with `async with`."""
    connection = _start(device, address, port, private_data, transport, path_mtu, setup)
    return await _when_ready_async(connection)


def listen(device: Device, port: int, *, backlog: int = 128) -> Listener:
    """Takes requests for connections at this port."""
    return Listener(manager(device), port, backlog)


class Request:
    """Represents a peer's request for a connection. `private_data` is padded with zeros."""

    def __init__(self, manager: Manager, event: events.ConnectRequest) -> None:
        self.private_data = event.private_data
        self._manager = manager
        self._cm = event.connection

    @property
    def peer(self) -> str:
        return self._cm.peer

    @property
    def peer_port(self) -> int:
        """Is the port that the peer says it comes from."""
        return self._cm.peer_port

    @property
    def path_mtu(self) -> int:
        return self._cm.path_mtu

    @property
    def is_waiting(self) -> bool:
        """Tells whether it is unanswered, and the peer has not given up as far as is known."""
        return self._cm.state is State.REQ_RECEIVED

    def accept(
        self, *, private_data: bytes = b"", timeout: float | None = None, **setup: Unpack[Setup]
    ) -> Connection:
        """Accepts, and returns the connection once the peer confirms it. Raises as `connect`."""
        connection = PassiveConnection(
            self._manager, self._cm, self.private_data, private_data, **setup
        )
        return _when_ready(connection, timeout)

    async def accept_async(
        self, *, private_data: bytes = b"", **setup: Unpack[Setup]
    ) -> Connection:
        """Accepts, for asyncio."""
        return await _when_ready_async(
            PassiveConnection(self._manager, self._cm, self.private_data, private_data, **setup)
        )

    def reject(self, private_data: bytes = b"", *, reason: int = messages.CONSUMER_REJECT) -> None:
        with self._manager.engine() as (engine, now):
            engine.reject(self._cm, now, reason=reason, private_data=private_data)


class Listener:
    """Yields requests, by `for` or `async for`. It is a context manager, which closes it."""

    def __init__(self, manager: Manager, port: int, backlog: int) -> None:
        self.port = port
        self._manager = manager
        self._requests: Mailbox[Request] = Mailbox()
        self._cm = manager.listen(port, "TCP", self._on_event, backlog)

    def get(self, timeout: float | None = None) -> Request:
        """Returns the next request. Raises TimeoutError after timeout seconds."""
        try:
            return self._requests.take(timeout)
        except MailboxClosed:
            raise ConnectError(f"port {self.port} has no listener any more") from None

    async def get_async(self) -> Request:
        """Returns the next request, for asyncio."""
        try:
            return await self._requests.take_async()
        except MailboxClosed:
            raise ConnectError(f"port {self.port} has no listener any more") from None

    def __iter__(self) -> Iterator[Request]:
        """Yields requests until the listener is closed."""
        while True:
            try:
                yield self._requests.take()
            except MailboxClosed:
                return

    async def __aiter__(self) -> AsyncIterator[Request]:
        while True:
            try:
                yield await self._requests.take_async()
            except MailboxClosed:
                return

    def close(self) -> None:
        """Rejects the requests that wait; connections stay."""
        self._requests.close()
        self._manager.unlisten(self._cm)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_event(self, event: events.Event | Closed) -> None:
        if not isinstance(event, events.ConnectRequest):
            self._requests.close()
            return
        largest = self._manager.device.path_mtu
        if event.connection.path_mtu <= largest:
            self._requests.put(Request(self._manager, event))
            return
        # Both sides have to use the same MTU: the REJ tells the peer which one it may ask for.
        code = largest.bit_length() - 8
        with self._manager.engine() as (engine, now):
            engine.reject(
                event.connection, now, reason=messages.INVALID_PATH_MTU, info=bytes([code])
            )


def _start(
    device: Device,
    address: str,
    port: int,
    private_data: bytes,
    transport: str,
    path_mtu: int | None,
    setup: Setup,
) -> Connection:
    return ActiveConnection(
        manager(device),
        transport,
        setup,
        address=address,
        port=port,
        path_mtu=min(path_mtu or device.path_mtu, device.path_mtu),
        private_data=private_data,
    )


def _when_ready(connection: Connection, timeout: float | None) -> Connection:
    try:
        connection.wait_ready(timeout)
    except BaseException:
        connection.close()
        raise
    return connection


async def _when_ready_async(connection: Connection) -> Connection:
    try:
        await connection.wait_ready_async()
    except BaseException:
        connection.close()
        raise
    return connection
