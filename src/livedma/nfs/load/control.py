# SPDX-License-Identifier: BSD-2-Clause
"""Makes the sessions and files of a run by a client of its own, and keeps its lease."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from livedma._native.load import Load
from livedma.errors import LivedmaError
from livedma.nfs.client import Client
from livedma.nfs.load.places import Places
from livedma.nfs.numbers import NfsError

__all__ = ["Control"]

_LOOKS = 4  # in one lease
_S = 1e-9


class Control:
    """Keeps the client's own session, which is at the server only while it is in use.

    Otherwise it would be one more than the user asked for, wherever sessions are counted. The
    sessions of the load belong to the same client id: each of their calls renews the lease.
    """

    def __init__(self, client: Client, load: Load, places: Places) -> None:
        self._client, self._load, self._places = client, load, places
        self._users = 1  # the caller that connected the client
        self._changing = asyncio.Lock()

    @property
    def lease_s(self) -> float:
        return self._client.identity.lease_s

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Client]:
        """Yields the client, with a session at the server. Raises RpcError and NfsError."""
        await self.take()
        try:
            yield self._client
        finally:
            await self.leave()

    async def take(self) -> Client:
        """Does the same as `use`, until `leave`."""
        async with self._changing:
            if not self._users:
                with self._places.for_new(0) as link:
                    await self._client.resume(self._places.connections[link])
            self._users += 1
        return self._client

    async def leave(self) -> None:
        """Destroys the session if this was the last user; a server that is away forgets it."""
        async with self._changing:
            self._users -= 1
            if not self._users:
                await self._client.rest()

    async def keep_lease(self) -> None:
        """Renews the lease, for as long as it runs, whenever no session has anything to do."""
        while True:
            await asyncio.sleep(self.lease_s / _LOOKS)
            quiet_s = time.monotonic() - self._load.heard_ns() * _S
            if quiet_s > self.lease_s / _LOOKS and not self._places.is_lost:
                with contextlib.suppress(LivedmaError, NfsError, OSError):
                    async with self.use() as client:
                        await client.through.compound()
