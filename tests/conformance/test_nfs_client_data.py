"""Our client against the kernel's nfsd in a guest: the data comes back as it went."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import nfs_data
import pytest
from nfs_data import Site
from nfs_sites import SITES

from livedma.lab.guest import Lab

pytestmark = pytest.mark.slow

LIMIT_S = 600.0

Scenario = Callable[[Site], Awaitable[None]]

SCENARIOS: dict[str, Scenario] = {
    "tree": lambda site: nfs_data.tree(site, files=5000),
    "random data": lambda site: nfs_data.random_data(site, operations=300, size=2 << 20),
    "many entries": lambda site: nfs_data.many_entries(site, count=10_000),
    "sparse": nfs_data.sparse,
    "locks": nfs_data.locks,
    "share modes": nfs_data.share_modes,
    "two writers": lambda site: nfs_data.two_writers(site, blocks=256),
    "attributes": nfs_data.attributes,
    "long paths": nfs_data.long_paths,
    "extras": nfs_data.extras,
    "many sessions": lambda site: nfs_data.many_sessions(site, count=20),
    "cut connections": lambda site: nfs_data.cut_connections(site, rounds=200),
}


@pytest.fixture(scope="module", params=SITES)
def site(request: pytest.FixtureRequest, guests: Lab) -> Iterator[Site]:
    """A server to be used from the host between the guests."""
    with SITES[request.param](guests) as site:
        yield site


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_data(scenario: str, site: Site) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S):
            await SCENARIOS[scenario](site)

    asyncio.run(run())
