# SPDX-License-Identifier: BSD-2-Clause
"""Our client against the kernel's nfsd in a guest: the data comes back as it went."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from nfs_sites import SITES

from livedma.lab.guest import Lab
from nfs_data import LIMIT_S, SCENARIOS, Site, restarted
from scale import at_scale

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=list(SITES)[: at_scale(len(SITES), 1)])
def site(request: pytest.FixtureRequest, guests: Lab) -> Iterator[Site]:
    with SITES[request.param](guests) as site:
        yield site


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_data(scenario: str, site: Site) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await SCENARIOS[scenario](site)

    asyncio.run(run())


def test_a_restart_of_the_server_is_survived(guests: Lab) -> None:
    def restart() -> None:
        guests.a.run("rpc.nfsd 0 && rpc.nfsd --no-nfs-version 3 2", check=True)
        guests.a.run("echo 'rdma 20049' > /proc/fs/nfsd/portlist", check=True)

    async def run() -> None:
        with SITES["nfsd-tcp"](guests) as site:
            async with asyncio.timeout(LIMIT_S):
                await restarted(replace(site, restart=restart))

    asyncio.run(run())
