# SPDX-License-Identifier: BSD-2-Clause
"""Offers the NFS client."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Literal

from livedma.nfs.client.codec.session import ChannelLimits
from livedma.nfs.client.connection import Connection, Terms
from livedma.nfs.client.errors import OperationFailed
from livedma.nfs.client.files import Files
from livedma.nfs.client.identity import Identity
from livedma.nfs.client.session import Session
from livedma.nfs.numbers import Status
from livedma.opening import enterable
from livedma.rpc.client import Transport
from livedma.rpc.message import AuthSys, OpaqueAuth
from livedma.rpc.names import TransportKind

__all__ = ["PORTS", "Client"]

PORTS = {TransportKind.TCP: 2049, TransportKind.RDMA: 20049}

_MESSAGE_MOST = (1 << 20) + 4096  # data of 1 MiB and the message around it
_CACHED_MOST = 4096
_OPERATIONS = 64

Kind = TransportKind | Literal["tcp", "rdma"]
Connect = Callable[[str, int], Awaitable[Transport]]


class Client(Files):
    """Offers a server's files, through a connection that is made again whenever it is lost.

    async with Client.connect("10.0.0.1") as client:
        async with client.open("/data", "rw", create=True) as file:
            await file.write(0, b"hello")
        print(await client.listdir("/"))
    """

    def __init__(self, connection: Connection, identity: Identity, wanted: ChannelLimits) -> None:
        self._connection = connection
        self._connections = [connection]
        self._identities = [identity]
        self._wanted = wanted
        self._first: Session | None = None

    @classmethod
    @enterable
    async def connect(
        cls,
        address: str,
        port: int | None = None,
        transport: Kind | Connect = TransportKind.TCP,
        *,
        via: Connection | None = None,
        minor: int | None = None,
        slots: int = 64,
        message_bytes: int = _MESSAGE_MOST,
        credential: AuthSys | OpaqueAuth | None = None,
        owner: bytes | None = None,
        call_s: float = 60.0,
        patience_s: float = 180.0,
    ) -> Client:
        """Connects, and begins a first session: awaited, or entered by `async with`.

        transport: may also be a function that connects to an address and port, such as from a
        device of the caller. via: a connection to use instead of a new one. minor: the version; if
        None, 4.2 if the server has it, else 4.1. slots: how many calls may be under way at once, if
        the server agrees. message_bytes: the longest call and reply. credential: the caller's; this
        process's by default. owner: the name that the server knows this client by; a client that
        comes back with the same owner gets rid of what it left. call_s, patience_s: see `Terms`.
        """
        made = via or connection_to(address, port, transport)
        acting = credential or own_credential()
        wanted = ChannelLimits(message_bytes, message_bytes, _CACHED_MOST, _OPERATIONS, slots)
        for version in (2, 1) if minor is None else (minor,):
            terms = Terms(version, acting, call_s, patience_s)
            identity = Identity(terms, owner or _new_owner())
            client = cls(made, identity, wanted)
            try:
                client._first = await identity.begin(made, wanted)
                return client
            except OperationFailed as failed:
                is_other = failed.status == Status.MINOR_VERS_MISMATCH
                if not is_other or minor is not None or version == 1:
                    await client.close()
                    raise
            except BaseException:
                await client.close()
                raise
        raise AssertionError("a version is always tried")

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def through(self) -> Session:
        assert self._first is not None
        return self._first

    @property
    def connection(self) -> Connection:
        """Returns the first connection."""
        return self._connection

    @property
    def identity(self) -> Identity:
        """Returns the first client id."""
        return self._identities[0]

    def connection_to(
        self, address: str, port: int | None = None, transport: Kind | Connect = TransportKind.TCP
    ) -> Connection:
        """Returns another connection, for `session` or `Session.bind`; it is made on first use."""
        made = connection_to(address, port, transport)
        self._connections.append(made)
        return made

    @enterable
    async def session(
        self,
        slots: int | None = None,
        *,
        connection: Connection | None = None,
        owner: bytes | None = None,
    ) -> Session:
        """Makes another session, on the first connection by default.

        owner: of a new client id for it; by default it belongs to that of the first session.
        """
        wanted = ChannelLimits(
            self._wanted.request_bytes,
            self._wanted.response_bytes,
            self._wanted.cached_bytes,
            self._wanted.operations,
            slots or self._wanted.slots,
        )
        where = connection or self._connection
        if owner is None:
            return await self.identity.session(where, wanted)
        identity = Identity(self.identity.terms, owner)
        self._identities.append(identity)
        return await identity.begin(where, wanted)

    async def rest(self) -> None:
        """Destroys the first session. Files stay open as long as other sessions of the client id,
        which were handed over, renew the lease.
        """
        await self.through.close()

    async def resume(self, connection: Connection) -> None:
        """Makes the first session again after `rest`, over this connection. If the server restarted
        meanwhile, it also gets back what was open.
        """
        self._first = await self.identity.resume(connection, self._wanted)

    async def close(self) -> None:
        """Closes sessions and connections as cleanly as the server allows. Idempotent."""
        try:
            await asyncio.gather(*(identity.close() for identity in self._identities))
        finally:
            for connection in self._connections:
                connection.close()


def connection_to(address: str, port: int | None, transport: Kind | Connect) -> Connection:
    """Returns a connection that is made on first use."""
    if callable(transport):
        connect, kind = transport, TransportKind.TCP
    else:
        kind = TransportKind(transport)
        connect = _connect_of(kind)
    where = PORTS[kind] if port is None else port
    return Connection(lambda: connect(address, where), f"{address} port {where}")


def _connect_of(kind: TransportKind) -> Connect:
    connect: Connect = import_module(f"livedma.rpc.{kind}_client").connect
    return connect


def own_credential() -> AuthSys:
    """Returns AUTH_SYS with the ids of this process."""
    machine = socket.gethostname().encode()[:255]
    gids = tuple(gid for gid in os.getgroups() if gid != os.getegid())[:16]
    return AuthSys(0, machine, os.geteuid(), os.getegid(), gids)


def _new_owner() -> bytes:
    name = f"livedma {socket.gethostname()} {os.getpid()}".encode()[:200]
    return name + b" " + secrets.token_hex(8).encode()  # readable in the log of a server
