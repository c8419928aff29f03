# SPDX-License-Identifier: BSD-2-Clause
"""The monitor beside the kernel's nfsd, which knows nothing of it: exactly what the client did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from livedma.lab.guest import Lab
from livedma.lab.wire import Rule, guest_wire
from livedma.monitor import Monitor, Snapshot
from livedma.monitor.snapshot import Losses
from livedma.nfs.load import Plan, Result
from livedma.rdma import Device
from scale import at_scale
from watched import Account, Watched, check_times, check_work, first_in_line

pytestmark = pytest.mark.slow

LIMIT_S = 240
CREDITS = "/proc/sys/sunrpc/svc_rdma/max_requests"


@pytest.fixture(scope="module")
def nfsd(bpf: None, guests: Lab) -> Iterator[Lab]:
    """nfsd in guest a. Connections get so many credits that the client waits for none: how long
    it did would be part of what it sees, and nothing of it is on the wire.
    """
    with guests.mtu(4500):
        guests.a.run("/lab/nfs-server", check=True)
        before = guests.a.run(f"cat {CREDITS}", check=True).stdout.strip()
        guests.a.run(f"echo 1024 > {CREDITS}", check=True)
        yield guests
        guests.a.run(f"echo {before} > {CREDITS}", check=True)


@contextmanager
def watching(lab: Lab, interface: str, **options: float) -> Iterator[Account]:
    with lab.host.inside(), Monitor([interface], **options) as monitor:  # type: ignore[arg-type]
        yield Account(monitor)


def run(
    lab: Lab, plan: Plan, *accounts: Account, when_filled: Callable[[], object] = lambda: None
) -> tuple[Result, Watched]:
    async def with_device(device: Device) -> tuple[Result, Watched]:
        watched = Watched(plan, lab.a.ipv4, *accounts, device=device, when_filled=when_filled)
        async with asyncio.timeout(LIMIT_S):
            return await watched.run(), watched

    with lab.host.inside(), first_in_line(), Device.towards(lab.a.ipv4) as device:
        return asyncio.run(with_device(device))


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("sessions", "depth", "size"),
    [(1, 16, 65536), (64, 1, 16384), (1000, 1, 4096)],
    ids=["1", "64", "1000"],
)
@pytest.mark.parametrize("interface", ["tapa", "br0"][: at_scale(2, 1)])
def test_each_session(nfsd: Lab, sessions: int, depth: int, size: int, interface: str) -> None:
    plan = Plan(
        sessions=sessions,
        depth=depth,
        size=size,
        rw="mix",
        seconds=at_scale(20, 3),
        file_bytes=size * depth,
        follow=False,
    )
    with watching(nfsd, interface) as account:
        result, watched = run(nfsd, plan, account)
    assert len(result.sessions) == sessions
    # And the client's own: one that opens files before, and one that removes them afterwards.
    assert len(account.sessions) in (sessions + 1, sessions + 2)
    assert result.counters.waited == 0
    check_work(result, account)
    check_times(watched)


def test_small_ones_are_inline(nfsd: Lab) -> None:
    plan = Plan(sessions=2, depth=4, size=512, rw="mix", seconds=1, file_bytes=16384, follow=False)
    with watching(nfsd, "tapa") as account:
        result, _ = run(nfsd, plan, account)
    check_work(result, account)


@pytest.mark.parametrize(("size", "rw"), [(2048, "mix"), (16384, "read")], ids=["inline", "chunks"])
def test_a_lossy_wire_leaves_nothing_in_the_tables(
    nfsd: Lab, size: int, rw: Literal["mix", "read"]
) -> None:
    """Before the wire and behind it, with room for what there is at a time and no more.

    Long WRITEs are spared. nfsd fetches them by READs, and when a response is late or lost, an ACK
    may come in its place: that ends the connection of a kernel.
    """
    rules = [Rule("drop", 0.01), Rule("duplicate", 0.01), Rule("reorder", 0.01, by=2)]
    plan = Plan(
        sessions=4,
        depth=4,
        size=size,
        rw=rw,
        seconds=at_scale(20, 2),
        file_bytes=16 * size,
        follow=False,
    )
    # A client whose last words are lost is forgotten when it was idle for long.
    room = {"connections": 1, "sessions": plan.sessions + 2, "idle_s": plan.seconds + 10}
    with (
        guest_wire(nfsd, nfsd.a, seed=5) as wire,
        watching(nfsd, "wire-a", **room) as before,
        watching(nfsd, "tapa", **room) as behind,
    ):
        both = before, behind
        for _ in range(at_scale(5, 2)):
            result, watched = run(nfsd, plan, *both, when_filled=lambda: wire.set_rules(*rules))
            wire.set_rules()
            for account, last in zip(both, watched.last, strict=True):
                check_work(result, account)
                assert [one.in_flight for one in last.connections] == [0]
                wait_until(lambda of=account: is_empty(of.look()))  # type: ignore[misc]
                assert (account.losses, account.unanswered) == (Losses(), 0)
        assert all(account.retransmissions for account in both)
        assert all(wire.counts(to)["drop"] for to in ("near", "far"))


def is_empty(snapshot: Snapshot) -> bool:
    return not snapshot.connections and not snapshot.sessions
