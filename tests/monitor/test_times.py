# SPDX-License-Identifier: BSD-2-Clause
"""How long operations take, as the monitor sees it, beside what the client itself saw."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from livedma.lab.hosts import two_hosts
from livedma.monitor import Monitor
from livedma.nfs.load import Plan, Result
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options
from scale import at_scale
from watched import Account, Watched, check_times, check_work, first_in_line

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LIMIT_S = 120
SIZE = 4096
# Nobody waits for a credit or for memory at the client, where no wire shows it.
ROOM = Options(window_bytes=64 << 20, mapped_bytes=64 << 20, buffer_bytes=SIZE, credits=1024)


@pytest.mark.parametrize(("sessions", "depth"), [(1, 16), (64, 2), (1000, 1)])
def test_the_client_agrees(bpf: None, tmp_path: Path, sessions: int, depth: int) -> None:
    plan = Plan(
        sessions=sessions,
        depth=depth,
        size=SIZE,
        rw="mix",
        seconds=at_scale(20, 1),
        file_bytes=SIZE * depth,
        follow=False,
    )

    async def run(device: Device, account: Account) -> tuple[Result, Watched]:
        watched = Watched(plan, near.ipv4, account, device=device)
        async with asyncio.timeout(LIMIT_S):
            return await watched.run(), watched

    (tmp_path / "export").mkdir()
    with two_hosts(mtu=9000) as (near, far):
        options = ServiceOptions(
            addresses=[near.ipv4],
            tcp_port=None,
            state=tmp_path / "state",
            config=Config(squash="none", store_delay_s=0.05),
            rdma=ROOM,
        )
        with near.inside():
            monitor = Monitor([near.iface])
            service = NfsService(tmp_path / "export", options)
        account = Account(monitor)
        with monitor, service, far.inside(), first_in_line(), Device(far.ipv4) as device:
            result, watched = asyncio.run(run(device, account))
    assert result.counters.waited == 0
    check_work(result, account)
    check_times(watched)
