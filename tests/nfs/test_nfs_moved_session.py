# SPDX-License-Identifier: BSD-2-Clause
"""A session moves from a connection that is cut to another one; each request is executed once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.nfs import Client, File
from livedma.nfs.server.facts import Facts
from livedma.nfs.server.service import NfsService
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from served import served

pytestmark = pytest.mark.slow

SERVER, CLIENT, PORT = "127.0.0.2", "127.0.0.3", 20050
LIMIT_S = 120.0
CHAINS, STEPS, BLOCK = 4, 40, 48 << 10


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    with served(tmp_path, SERVER, PORT) as service:
        yield service


def block(chain: int, step: int) -> bytes:
    return f"{chain:04}{step:04}".encode() * (BLOCK // 8)


async def rename_and_write(client: Client, file: File, chain: int) -> None:
    """A second RENAME of the same step would be NOENT, a second exclusive MKDIR EXIST."""
    for step in range(STEPS):
        await file.write(step * BLOCK, block(chain, step))
        await client.rename(f"/chain{chain}-{step}", f"/chain{chain}-{step + 1}")
        await client.mkdir(f"/step{chain}-{step}")


@pytest.mark.parametrize("is_first_kept", [False, True], ids=["replaced", "two"])
def test_each_request_is_executed_once(service: NfsService, is_first_kept: bool) -> None:
    """Two connections of a session, or a second one that takes its place, cut again and again."""
    facts = Facts(service)

    async def cut_now_and_then(client: Client) -> int:
        cuts = 0
        while True:
            await asyncio.sleep(0.02)
            for connection in facts.connections():
                service.cut(connection["number"])
                cuts += 1
                await asyncio.sleep(0.02)
            if len(facts.sessions()) != 1:
                return -1  # the session itself must stay
            if client_is_done.is_set():
                return cuts

    client_is_done = asyncio.Event()

    async def run() -> None:
        with Device(CLIENT) as device:

            async def connect(address: str, port: int) -> Transport:
                return await rdma_client.connect(address, port, device=device)

            async with (
                asyncio.timeout(LIMIT_S),
                await Client.connect(SERVER, PORT, connect) as client,
            ):
                (before,) = facts.sessions()
                files = []
                for chain in range(CHAINS):
                    await client.mkdir(f"/chain{chain}-0")
                    files.append(await client.open(f"/data{chain}", "rw", create=True))
                second = client.connection_to(SERVER, PORT, connect)
                await client.through.bind(second)
                (bound,) = facts.sessions()
                assert len(bound["connections"]) == 2
                if not is_first_kept:
                    client.through.unbind(client.connection)
                cutting = asyncio.create_task(cut_now_and_then(client))
                await asyncio.gather(
                    *(rename_and_write(client, file, n) for n, file in enumerate(files))
                )
                client_is_done.set()
                assert await cutting > 0
                for file in files:
                    await file.close()
                (after,) = facts.sessions()
                assert after["id"] == before["id"]

    asyncio.run(run())
    names = {path.name for path in service.directory.iterdir()}
    steps = {f"step{chain}-{step}" for chain in range(CHAINS) for step in range(STEPS)}
    ends = {f"chain{chain}-{STEPS}" for chain in range(CHAINS)}
    assert names == steps | ends | {f"data{chain}" for chain in range(CHAINS)}
    for chain in range(CHAINS):
        expected = b"".join(block(chain, step) for step in range(STEPS))
        assert (service.directory / f"data{chain}").read_bytes() == expected
