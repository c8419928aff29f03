# SPDX-License-Identifier: BSD-2-Clause
"""livedma watch, begun in the middle of fio on the kernel's client against the kernel's nfsd."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from looking import traced, wait_for
from serving import PATIENCE_S
from tests.cli.watching import Watching, watching

from livedma.lab.channel import Command
from livedma.lab.guest import Guest, Lab
from livedma.lab.wire import Rule, guest_wire

pytestmark = pytest.mark.slow

MOUNT = "/mnt/nfsd"
WAY_S = 0.05  # what the guests themselves take is little beside it
JOB = (
    f"fio --name=job --directory={MOUNT} --ioengine=libaio --direct=1 --bs=16k --size=1m "
    "--time_based"
)
MIXED = f"{JOB} --rw=randrw --iodepth=8"
READS = f"{JOB} --rw=randread --iodepth=2"
NEAR = 0.1


@pytest.fixture
def mount(bpf: None, wide: Lab) -> Iterator[Lab]:
    """nfsd in guest a, a mount of it in guest b, and a long way between them."""
    wide.a.run("/lab/nfs-server", check=True)
    with guest_wire(wide, wide.a) as wire:
        options = "vers=4.2,proto=rdma,port=20049"
        wide.b.run(
            f"mkdir -p {MOUNT} && mount -t nfs -o {options} {wide.a.ipv4}:/ {MOUNT}", check=True
        )
        wire.set_rules(Rule("delay", delay_s=WAY_S))
        try:
            yield wide
        finally:
            wire.set_rules()
            wide.b.run(f"umount -f -l {MOUNT}", timeout_s=PATIENCE_S)


@contextmanager
def fio(guest: Guest, seconds: int) -> Iterator[Command]:
    """It is at work."""
    with guest.command(f"{MIXED} --runtime={seconds}") as job:
        begun = counted(guest)["calls"]
        wait_for(lambda: counted(guest)["calls"] > begun + 50, "fio at work")
        yield job


def counted(guest: Guest) -> dict[str, int]:
    """What the kernel's client counted itself: replies, and bytes that came from servers or went
    there.
    """
    shown = guest.run("cat /proc/self/mountstats", check=True).stdout
    mine = shown[shown.index(f"mounted on {MOUNT} ") :]
    lines = {line.split()[0]: line.split()[1:] for line in mine.splitlines() if line.strip()}
    moved, transport = lines["bytes:"], lines["xprt:"]
    assert transport[0] == "rdma"
    return {"calls": int(transport[7]), "read": int(moved[4]), "written": int(moved[5])}


def seen(watch: Watching) -> dict[str, int]:
    objects = list(watch.seen)
    return {
        "calls": sum(one["operations"] for seen in objects for one in seen["connections"]),
        "read": sum(one["read_bytes"] for seen in objects for one in seen["sessions"]),
        "written": sum(one["written_bytes"] for seen in objects for one in seen["sessions"]),
    }


def still(watch: Watching, guest: Guest) -> tuple[dict[str, int], dict[str, int]]:
    """What both have counted, at a moment when nothing is under way."""

    def both() -> tuple[dict[str, int], dict[str, int]]:
        return counted(guest), seen(watch)

    while True:
        before = both()
        watch.wait_for(lambda one: all(not each["in_flight"] for each in one["connections"]))
        time.sleep(0.3)
        if both() == before:
            return before


@pytest.mark.alone
def test_exact_from_when_it_says_that_it_sees(mount: Lab) -> None:
    guest = mount.b
    with first_in_line(guest), fio(guest, 600) as job, watching(mount.host, guest.tap) as watch:
        found = watch.wait_for(lambda one: one["sessions"])
        (connection,) = found["connections"]
        assert connection["learnt_s"] is not None
        assert (connection["server"], connection["client"]) == (mount.a.ipv4, guest.ipv4)
        job.kill(2)
        job.wait(PATIENCE_S)
        done_before, seen_before = still(watch, guest)
        guest.run(f"{MIXED} --runtime=2", timeout_s=PATIENCE_S, check=True)
        with traced(guest, "sunrpc/rpc_stats_latency") as values, watching_once(mount) as other:
            guest.run(f"{READS} --runtime=6", timeout_s=PATIENCE_S, check=True)
            rtts_us = values("rtt")
        whole = other.seen[-1]
        done_after, seen_after = still(watch, guest)
        watch.end()
    assert grown(seen_before, seen_after) == grown(done_before, done_after)
    assert done_after["calls"] - done_before["calls"] > 80
    losses = watch.seen[-1]["losses"]
    assert {**losses, "early": 0} == dict.fromkeys(losses, 0)
    check_latency(rtts_us, whole)


@contextmanager
def first_in_line(guest: Guest) -> Iterator[None]:
    """The client's guest runs before others: what a reply waits for there is on no wire."""
    tasks = [int(one.name) for one in Path(f"/proc/{guest.pid()}/task").iterdir()]
    before = {one: os.getpriority(os.PRIO_PROCESS, one) for one in tasks}
    try:
        for one in before:
            os.setpriority(os.PRIO_PROCESS, one, -20)
        yield
    finally:
        for one, priority in before.items():
            with contextlib.suppress(OSError):  # a thread that has ended
                os.setpriority(os.PRIO_PROCESS, one, priority)


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after}


@contextmanager
def watching_once(lab: Lab) -> Iterator[Watching]:
    """Its last object covers all that it saw."""
    with watching(lab.host, lab.b.tap, "--interval", "60s") as watch:
        yield watch
        watch.end()


def check_latency(rtts_us: list[int], whole: dict[str, Any]) -> None:
    """rtts_us: by the client's own clock, from when it had sent a call until it had the reply."""
    (connection,) = whole["connections"]
    ordered = sorted(rtts_us)
    assert len(ordered) > 40
    for part, name in ((0.5, "p50_ns"), (0.99, "p99_ns")):
        expected = ordered[int(part * len(ordered))] * 1000
        assert connection["latency"][name] == pytest.approx(expected, rel=NEAR)
