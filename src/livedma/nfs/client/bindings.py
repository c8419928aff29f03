# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the connections that a session is bound to (RFC 8881 section 2.10.3)."""

from __future__ import annotations

import asyncio

from livedma.nfs.client.codec.session import bind_conn_to_session
from livedma.nfs.client.connection import Backoff, Connection, Terms
from livedma.nfs.numbers import Status
from livedma.rpc.client import ConnectionLost, Transport

__all__ = ["Bindings"]


class Bindings:
    """Keeps the connections that a session may use, and the transport over which each of them is
    bound.

    A connection that was lost and made again has to be bound again.
    """

    def __init__(self, terms: Terms, connection: Connection) -> None:
        self._terms = terms
        self._connections = [connection]
        self._session_id = b""
        self._bound: dict[Connection, Transport] = {}
        self._binding = asyncio.Lock()

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._connections)

    def begin(self, session_id: bytes, connection: Connection, transport: Transport) -> None:
        """Notes the new session and the connection that made it, which is bound by that."""
        self._session_id = session_id
        self._bound = {connection: transport}

    def forget(self) -> None:
        """Forgets all bindings: the server knows of none."""
        self._bound.clear()

    async def add(self, connection: Connection, backoff: Backoff) -> None:
        await self._bind(connection, backoff)
        if connection not in self._connections:
            self._connections.append(connection)

    def remove(self, connection: Connection) -> None:
        if self._connections == [connection]:
            raise ValueError("a session needs a connection")
        self._connections.remove(connection)
        self._bound.pop(connection, None)

    async def carrier(self, backoff: Backoff) -> tuple[Connection, Transport]:
        """Returns the least busy connection that is alive, or the first that can be made; bound.

        Raises `ConnectionLost` when patience is over, `OperationFailed` if it cannot be bound.
        """
        alive = [one for one in self._connections if one.is_open]
        connection = min(alive, key=lambda one: one.in_flight, default=None)
        if connection is None:
            connection = await self._reconnect(backoff)
        transport = connection.transport
        if transport is None or self._bound.get(connection) is not transport:
            transport = await self._bind(connection, backoff)
        return connection, transport

    async def _reconnect(self, backoff: Backoff) -> Connection:
        while True:
            for connection in self._connections:
                try:
                    await connection.ensure(Backoff(0))
                except ConnectionLost:
                    if backoff.is_over:
                        raise
                else:
                    return connection
            await backoff.wait()

    async def _bind(self, connection: Connection, backoff: Backoff) -> Transport:
        async with self._binding:
            while True:
                transport = await connection.ensure(backoff)
                if self._bound.get(connection) is transport:
                    return transport
                session_id = self._session_id
                bind = bind_conn_to_session(session_id)
                try:
                    outcome = await connection.perform(transport, self._terms, [bind])
                except ConnectionLost:
                    if backoff.is_over:
                        raise
                else:
                    if outcome.error is None and session_id == self._session_id:
                        self._bound[connection] = transport
                        return transport
                    if outcome.error is not None and outcome.status != Status.DELAY:
                        raise outcome.error
                await backoff.wait()
