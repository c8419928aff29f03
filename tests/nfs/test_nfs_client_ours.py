"""Our client against our server, over TCP and RDMA: the data comes back as it went."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.nfs.config import Config
from livedma.nfs.service import NfsService, Wishes
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from needs import needs
from nfs_data import LIMIT_S, SCENARIOS, Site, restarted

pytestmark = pytest.mark.slow

SERVER, CLIENT, RESTARTED = "127.0.0.2", "127.0.0.3", "127.0.0.4"
TCP_PORT, RDMA_PORT = 20490, 20049


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NfsService]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    wishes = Wishes(
        addresses=[SERVER],
        tcp_port=TCP_PORT,
        rdma_port=RDMA_PORT,
        state=tmp_path_factory.mktemp("state"),
        config=Config(squash="none"),
    )
    export: Path = tmp_path_factory.mktemp("export")
    export.chmod(0o755)
    with NfsService(export, wishes) as service:
        yield service


@pytest.fixture(scope="module", params=["tcp", "rdma"])
def site(request: pytest.FixtureRequest, service: NfsService) -> Iterator[Site]:
    if request.param == "tcp":
        yield Site(SERVER, TCP_PORT)
        return
    with Device(CLIENT) as device:

        async def connect(address: str, port: int) -> Transport:
            return await rdma_client.connect(address, port, device=device)

        yield Site(SERVER, RDMA_PORT, connect)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_data(scenario: str, site: Site) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await SCENARIOS[scenario](site)

    asyncio.run(run())


def test_a_restart_of_the_server_is_survived(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export = tmp_path / "export"
    export.mkdir()
    wishes = Wishes(
        addresses=[RESTARTED],
        tcp_port=TCP_PORT,
        rdma_port=None,
        state=tmp_path / "state",
        config=Config(squash="none", lease_s=10, grace_s=10),
    )
    services = [NfsService(export, wishes)]

    def restart() -> None:
        services.pop().close()
        services.append(NfsService(export, wishes))

    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await restarted(Site(RESTARTED, TCP_PORT, restart=restart))

    try:
        asyncio.run(run())
    finally:
        services.pop().close()
