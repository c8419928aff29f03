# SPDX-License-Identifier: BSD-2-Clause
"""A client's connection that is closed while it is being made."""

from __future__ import annotations

import asyncio
import socket

import pytest

from livedma.nfs.client.connection import Backoff, Connection
from livedma.rpc import tcp_client
from livedma.rpc.client import ConnectionLost, Transport


def test_what_is_made_after_the_end_is_closed() -> None:
    async def run() -> None:
        made: list[Transport] = []
        is_closed = asyncio.Event()

        async def connect() -> Transport:
            made.append(await tcp_client.connect("127.0.0.1", listener.getsockname()[1]))
            await is_closed.wait()
            return made[0]

        connection = Connection(connect, "it")
        making = asyncio.create_task(connection.ensure(Backoff(60.0)))
        while not made:
            await asyncio.sleep(0.001)
        connection.close()
        is_closed.set()
        with pytest.raises(ConnectionLost, match="was closed"):
            await making
        assert not made[0].is_open

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run())
