# SPDX-License-Identifier: BSD-2-Clause
"""Our client against our server, over TCP and RDMA: the data comes back as it went."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.nfs import File
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from needs import needs
from nfs_data import LIMIT_S, SCENARIOS, Site, restarted
from scale import at_scale

pytestmark = pytest.mark.slow

SERVER, CLIENT, RESTARTED = "127.0.0.2", "127.0.0.3", "127.0.0.4"
TCP_PORT, RDMA_PORT = 20490, 20049
FILES, ENTRIES = at_scale(5000, 300), at_scale(10_000, 3000)
START_S = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NfsService]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=TCP_PORT,
        rdma_port=RDMA_PORT,
        state=tmp_path_factory.mktemp("state"),
        config=Config(squash="none"),
    )
    export: Path = tmp_path_factory.mktemp("export")
    export.chmod(0o755)
    with NfsService(export, options) as service:
        yield service


@pytest.fixture(scope="module", params=["tcp", "rdma"])
def site(request: pytest.FixtureRequest, service: NfsService) -> Iterator[Site]:
    if request.param == "tcp":
        yield Site(SERVER, TCP_PORT, files=FILES, entries=ENTRIES)
        return
    with Device(CLIENT) as device:

        async def connect(address: str, port: int) -> Transport:
            return await rdma_client.connect(address, port, device=device)

        yield Site(SERVER, RDMA_PORT, connect, files=FILES, entries=ENTRIES)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_data(scenario: str, site: Site) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await SCENARIOS[scenario](site)

    asyncio.run(run())


def test_slots_are_followed_up_and_down_while_calls_are_made(
    site: Site, service: NfsService
) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S), site.client(slots=4) as client:
            async with await client.open("/slots", "rw", create=True) as file:
                session = client.through
                busy = asyncio.gather(*(write_on(file, number) for number in range(40)))
                for slots in (32, 2, 17, 1, 8):
                    service.server.sessions.find(session.session_id).set_slots(slots)
                    while session.slots != slots:
                        assert not busy.done()
                        await asyncio.sleep(0.01)
                is_enough.set()
                counts = await busy
                for number, count in enumerate(counts):
                    read = await file.read(number * 8, 8)
                    assert int.from_bytes(read, "big") == count
            assert client.identity.recoveries == 0 and client.connection.made == 1
            await client.remove("/slots")

    async def write_on(file: File, number: int) -> int:
        count = 0
        while not is_enough.is_set() or not count:
            count += 1
            await file.write(number * 8, count.to_bytes(8, "big"))
        return count

    is_enough = asyncio.Event()
    asyncio.run(run())


class Process:
    """A server of its own, which can be killed."""

    def __init__(self, export: Path, state: Path) -> None:
        self._command = [sys.executable, "-m", "livedma.cli", "serve", str(export)]
        self._command += ["--listen", RESTARTED, "--tcp", str(TCP_PORT), "--rdma", "off"]
        self._command += ["--state", str(state), "--squash", "none", "--lease", "10"]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        end_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((RESTARTED, TCP_PORT), timeout=1).close()
                return process
            except OSError:
                assert process.poll() is None and time.monotonic() < end_s
                time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = self._started()


def test_a_server_that_is_killed_and_comes_back_is_survived(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export = tmp_path / "export"
    export.mkdir()
    server = Process(export, tmp_path / "state")

    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await restarted(Site(RESTARTED, TCP_PORT, restart=server.restart))

    try:
        asyncio.run(run())
    finally:
        server.kill()
