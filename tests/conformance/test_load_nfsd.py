# SPDX-License-Identifier: BSD-2-Clause
"""The load against the kernel's nfsd in a guest: every byte is as it was written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest
from endpoints import Rxe

from livedma.lab.guest import Lab
from livedma.nfs.load import Plan, Result, Runner
from livedma.rdma import Device
from scale import at_scale

pytestmark = pytest.mark.slow

PORTS = {"rdma": 20049, "tcp": 2049}
LIMIT_S = 120


@pytest.fixture(scope="module")
def server(guests: Lab, kernel: Rxe) -> Iterator[str]:
    """The address of guest a, where nfsd runs; from the host between the guests."""
    guests.a.run("/lab/nfs-server", check=True)
    with guests.host.inside():
        yield guests.a.ipv4


def load(server: str, proto: Literal["rdma", "tcp"], **options: Any) -> Result:
    plan = Plan(proto=proto, **{"seconds": 2.0, **options})

    async def run(device: Device | None) -> Result:
        async with asyncio.timeout(LIMIT_S):
            return await Runner(plan, server, PORTS[proto], device=device).run()

    with ExitStack() as stack:
        device = stack.enter_context(Device.towards(server)) if proto == "rdma" else None
        return asyncio.run(run(device))


@pytest.mark.parametrize("proto", list(PORTS)[: at_scale(len(PORTS), 1)])
@pytest.mark.parametrize(
    "options",
    [
        {"sessions": 4, "rw": "mix"},
        {"sessions": 8, "size": 4096, "depth": 8, "connections": 2},
        {"sessions": 2, "size": 1 << 17, "rw": "mix", "pattern": "sequential"},
        {"sessions": 4, "ramp": 8.0, "rate": 400.0, "size": 8192, "seconds": 8.0},
    ],
    ids=["mix", "two connections", "long", "ramp"],
)
def test_nothing_is_lost(server: str, proto: Literal["rdma", "tcp"], options: Any) -> None:
    result = load(server, proto, **options)
    assert result.is_clean, (result.counters, result.sessions, result.refused, result.lost)
    assert all(one.operations for one in result.sessions)
    assert len(result.sessions) == options["sessions"]


def test_credits_are_waited_for(server: str) -> None:
    """nfsd grants 64; there are 128 slots."""
    result = load(server, "rdma", sessions=32, size=4096)
    assert result.is_clean, (result.counters, result.sessions, result.refused, result.lost)
    assert result.counters.waited > 0
