# SPDX-License-Identifier: BSD-2-Clause
"""The monitor beside a real server under load: exactly what the server itself counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_server import Watch, load, serving

from livedma.lab.hosts import two_hosts
from livedma.lab.wire import Rule, wired_hosts
from livedma.monitor import Monitor
from livedma.monitor.snapshot import Losses

pytestmark = [pytest.mark.slow, pytest.mark.apart]

SMALL = ("--size=4KiB", "--rw=mix", "--seconds=1", "--file-size=256KiB")


@pytest.mark.parametrize(
    ("sessions", "options"),
    [
        (1, ("--depth=32", *SMALL)),
        (64, ("--depth=3", *SMALL)),
        (64, ("--depth=2", "--size=64KiB", "--seconds=1", "--file-size=256KiB", "--connections=3")),
        (1000, ("--depth=1", *SMALL)),
    ],
)
def test_each_session(bpf: None, tmp_path: Path, sessions: int, options: tuple[str, ...]) -> None:
    with two_hosts(mtu=9000) as (near, far):
        with near.inside():
            monitor = Monitor([near.iface])
        with monitor, serving(near, tmp_path, near.ipv4) as ended:
            watch = Watch(monitor)
            total = watch.during(load(far, near.ipv4, f"--sessions={sessions}", *options))
    assert total["errors"] == total["unanswered"] == 0
    assert len(ended) == sessions + 2  # those that opened files before, and removed them afterwards
    assert watch.sessions == ended
    assert (watch.losses, watch.total["unanswered"]) == (Losses(), 0)
    moved = sum(one.read_bytes + one.written_bytes for one in ended.values())
    assert moved == total["bytes"] + sessions * 256 * 1024  # files are written first
    assert watch.total["read_bytes"] + watch.total["written_bytes"] == moved


@pytest.mark.parametrize("where", ["client", "IPv6", "lo"])
def test_wherever_it_looks(bpf: None, tmp_path: Path, where: str) -> None:
    with two_hosts(mtu=9000) as (near, far):
        if where == "lo":
            far, address = near, "127.0.0.1"
        else:
            address = near.ipv6 if where == "IPv6" else near.ipv4
        host, interface = (near, "lo") if where == "lo" else (far, far.iface)
        source = ("--source=127.0.0.2",) if where == "lo" else ()
        with host.inside():
            monitor = Monitor([interface])
        with monitor, serving(near, tmp_path, address) as ended:
            watch = Watch(monitor)
            watch.during(load(far, address, "--sessions=4", *SMALL, *source))
    assert watch.sessions == ended
    assert (watch.losses, watch.total["retransmissions"]) == (Losses(), 0)


def test_a_lossy_wire_leaves_nothing_in_the_tables(bpf: None, tmp_path: Path) -> None:
    rules = (Rule("drop", 0.01), Rule("duplicate", 0.01), Rule("reorder", 0.01, by=2))
    with wired_hosts(*rules, mtu=9000, seed=3) as (near, far, _):
        with near.inside():
            monitor = Monitor([near.iface], connections=2, sessions=32)
        with monitor, serving(near, tmp_path, near.ipv4) as ended:
            watch = Watch(monitor)
            for _ in range(2):
                watch.during(load(far, near.ipv4, "--sessions=8", *SMALL))
            assert monitor.snapshot().connections == ()
            assert all(one.in_flight == 0 for one in monitor.snapshot().sessions)
    assert watch.sessions == ended
    assert watch.total["retransmissions"] > 0
    assert (watch.losses, watch.total["unanswered"]) == (Losses(), 0)
    assert watch.most_in_flight <= 8 * 4 + 1
