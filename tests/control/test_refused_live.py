# SPDX-License-Identifier: BSD-2-Clause
"""A real server refuses new sessions where their memory is missing, and nowhere else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.control.live import CLIENT, LIMIT_S, PORT, SERVER, loaded, serve, told, wait_for

from livedma.monitor.snapshot import Snapshot
from livedma.nfs import Client
from livedma.nfs.client.errors import OperationFailed
from livedma.nfs.control import Control
from livedma.nfs.load import Plan
from livedma.nfs.numbers import Status
from livedma.rdma import Device
from livedma.rpc import rdma_client, tcp_client
from livedma.rpc.client import RpcError, Transport

pytestmark = [pytest.mark.slow, pytest.mark.alone]

TCP_PORT = 20152
OTHER = CLIENT.rpartition(".")[0] + ".65"
#: 256 calls want 55 buffers: its window is full, and most of the time is waiting.
GREEDY = Plan(sessions=64, depth=4, size=65536, seconds=LIMIT_S)
#: The same, but sessions go on coming while new ones are refused.
GROWING = Plan(sessions=1000, ramp=20.0, depth=8, size=65536, seconds=LIMIT_S)
FULL = ("--window", "4MiB", "--mapped", "1", "--tcp", str(TCP_PORT))


@asynccontextmanager
async def connected(device: Device | None, name: str) -> AsyncIterator[Client]:
    """A client over RDMA, or without a device over TCP."""

    async def connect(address: str, port: int) -> Transport:
        if device is None:
            return await tcp_client.connect(address, port)
        return await rdma_client.connect(address, port, device=device)

    port = TCP_PORT if device is None else PORT
    async with asyncio.timeout(LIMIT_S), Client.connect(SERVER, port, connect) as client:
        await use(client, name)
        yield client


async def use(client: Client, name: str) -> None:
    data = os.urandom(3 * 65536 + 5)
    async with client.open(name, "rw", create=True) as file:
        await file.write(0, data)
        assert await file.read(0, len(data)) == data


def test_one_full_window_does_not_concern_others(tmp_path: Path) -> None:
    async def others() -> None:
        with Device(OTHER) as device:
            for its in (device, None):
                async with connected(its, "/other") as client, client.session() as another:
                    assert another.session_id != client.through.session_id

    with serve(tmp_path, *FULL) as served:
        control = served.control
        with loaded(GROWING) as results:
            (refused,) = wait_for(lambda: told(control, "refuse"))
            snapshot = wait_for(lambda: refusing(control))
            (connection,) = snapshot.connections
            assert refused["connection"] == connection.number
            assert f"connection {connection.number}: new sessions on it" in refused["line"]
            assert not snapshot.host.refuses_sessions
            asyncio.run(others())
            assert told(control, "refuse") == [refused] and not told(control, "admit")
        (result,) = results  # which is flawless, but for those that came later
        assert result.refused and "NOSPC" in result.refused[0]
        # The connection has ended: nobody is refused, and nothing had to be admitted.
        wait_for(lambda: not control.ask("snapshot")["connections"])
        asyncio.run(others())
        assert not told(control, "admit") and not told(control, "failed")


def test_without_memory_on_the_host_everybody_new_is_refused(tmp_path: Path) -> None:
    async def newcomers() -> None:
        with pytest.raises(OperationFailed) as refused:
            async with connected(None, "/new"):
                pytest.fail("a new client got a session")
        assert refused.value.status == Status.SERVERFAULT
        with Device(OTHER) as device, pytest.raises((RpcError, OSError), match="budget"):
            async with connected(device, "/new"):
                pytest.fail("a further connection was made")

    async def while_refused() -> None:
        async with connected(None, "/there") as there:
            with loaded(GREEDY):
                await asyncio.to_thread(wait_for, lambda: everybody(told(control, "refuse")))
                await newcomers()
                with pytest.raises(OperationFailed) as refused:
                    await there.session()
                assert refused.value.status == Status.NOSPC
                await use(there, "/there")
            await asyncio.to_thread(wait_for, lambda: everybody(told(control, "admit")))
            async with there.session(), connected(None, "/new"):
                pass

    with serve(tmp_path, *FULL, "--budget", "6MiB") as served:
        control = served.control
        asyncio.run(while_refused())


def refusing(control: Control) -> Snapshot | None:
    """A snapshot in which a connection refuses sessions."""
    snapshot = Snapshot.from_json(control.ask("snapshot"))
    return snapshot if any(one.refuses_sessions for one in snapshot.connections) else None


def everybody(events: list[dict[str, object]]) -> bool:
    return any(one["connection"] is None for one in events)
