# SPDX-License-Identifier: BSD-2-Clause
"""Inside the kernel's NFS server, while it serves the kernel's client: `livedma watch --inside`
runs in the server's guest and counts exactly what the client counts, over RDMA and TCP.
"""

from __future__ import annotations

import json
import re
import secrets
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from inside_nfsd import (
    LIMIT_S,
    MOUNTS,
    Site,
    Watch,
    Work,
    counted,
    mounted,
    slow_disk,
    writes,
)

from guest_package import put_package
from livedma.lab.guest import Guest, Lab
from livedma.monitor.snapshot import Times

pytestmark = pytest.mark.slow

STORAGE_NS = 20_000_000
JOBS = 8
WHILE_S = 15
ROUND_TRIPS = 100  # at least in that time
NEAR = 0.1
THREADS = "/proc/fs/nfsd/threads"
CREDITS = "/proc/sys/sunrpc/svc_rdma/max_requests"
NAMED_LEAST = 3  # intervals in which a limit was named


def both(site: Site, transport: str) -> tuple[Work, Work]:
    """Returns what client and watch have counted at a moment when the client does nothing. It asks
    for a lease now and then: such a call must not come in between.
    """
    at = f"/inside/{transport}"
    for _ in range(20):
        before, _ = counted(site.client, at)
        site.watch.catch_up()
        seen = site.watch.work(transport)
        if before == counted(site.client, at)[0]:
            return before, seen
    raise AssertionError("the client is never at rest")


@pytest.fixture(scope="module")
def site(guests: Lab) -> Iterator[Site]:
    """The watch begins in the middle: clients are connected, and their calls are under way."""
    a, b = guests.a, guests.b
    a.run("/lab/nfs-server", check=True)
    livedma = put_package(a, ("monitor", "nfsd", "wire", "xdr"))
    busy = "; ".join(
        f"dd if=/dev/zero of=/inside/{one}/before-{one} bs=16k count=4 oflag=direct"
        for one in MOUNTS
    )
    with mounted(b, "rdma"), mounted(b, "tcp"):
        b.run("touch /tmp/busy")
        with (
            b.command(f"while [ -e /tmp/busy ]; do {busy}; done 2>/dev/null") as loop,
            a.command(f"{livedma} watch --inside --json --interval 500ms") as command,
        ):
            command.wait_for("watching", LIMIT_S)
            watch = Watch(a, command)
            watch.catch_up()
            b.run("rm /tmp/busy", check=True)
            loop.wait(LIMIT_S)
            yield Site(a, b, watch, guests, livedma)


def test_counts_are_the_clients(site: Site) -> None:
    before = {one: both(site, one) for one in MOUNTS}
    trips_ms = {one: counted(site.client, f"/inside/{one}")[1] for one in MOUNTS}
    first = len(site.watch.seen)
    work = [
        f"(dd if=/dev/zero of=/inside/{one}/x-{one} bs={size}k count=40 oflag=direct; "
        f"dd if=/inside/{one}/x-{one} of=/dev/null bs={size // 2}k iflag=direct; "
        f"dd if=/dev/zero of=/inside/{one}/y-{one} bs=100 count=30 oflag=direct) 2>/dev/null"
        for one, size in (("rdma", 64), ("tcp", 32))
    ]
    site.client.run(" & ".join(work) + "; wait", LIMIT_S, check=True)
    for transport, size in (("rdma", 65536), ("tcp", 32768)):
        clients, seen = (
            now.since(then)
            for now, then in zip(both(site, transport), before[transport], strict=True)
        )
        assert seen == clients
        assert seen[1:] == (40 * size, 40 * size + 3000)
        rows = site.watch.connections(transport, first)
        latency_ns = sum(one.latency.sum_ns for one in rows)
        kernel = [one.kernel for one in rows if one.kernel]
        parts = [
            sum(getattr(one, name).sum_ns for one in kernel)
            for name in ("thread_waits", "fetches", "storage")
        ]
        assert 0 < sum(parts) <= latency_ns
        assert (parts[1] > 0) == (transport == "rdma")
        trips = counted(site.client, f"/inside/{transport}")[1] - trips_ms[transport]
        # The client rounds each of its calls down to a millisecond.
        assert latency_ns / 1e6 <= trips + clients.calls
    assert not any(one.in_flight for one in site.watch.seen[-1].connections)
    assert not any(one.in_flight for one in site.watch.seen[-1].sessions)


def test_two_sessions_are_two(site: Site) -> None:
    last = site.watch.catch_up()
    sessions = {
        transport: {
            session.id
            for session in last.sessions
            for number in session.connections
            if (one := last.connection(number)) and one.transport == transport
        }
        for transport in MOUNTS
    }
    assert [len(ids) for ids in sessions.values()] == [1, 1]
    assert not sessions["rdma"] & sessions["tcp"]
    rdma, tcp = (site.watch.connections(one)[-1] for one in MOUNTS)
    assert (rdma.server, rdma.client) == (tcp.server, tcp.client) == ("10.77.0.1", "10.77.0.2")
    assert rdma.server_qpn and 0 < rdma.credits_granted <= rdma.credits_asked
    assert last.losses.calls == last.losses.sessions == last.losses.connections == 0


def test_made_up_sessions_take_no_place(site: Site) -> None:
    known = {one.id for one in site.watch.catch_up().sessions}
    first = len(site.watch.seen)
    with site.lab.host.inside():
        peer = socket.create_connection((site.server.ipv4, 2049), timeout=30)
    with peer:
        for xid in range(100):
            call = struct.pack(">9I", xid, 0, 2, 100003, 4, 1, 0, 0, 0) + bytes(4)
            call += struct.pack(">4I", 0, 1, 1, 53) + secrets.token_bytes(16)
            call += struct.pack(">4I", 1, 0, 0, 0)
            peer.sendall(struct.pack(">I", 1 << 31 | len(call)) + call)
            reply = peer.recv(4 + 28 + 12 + 8, socket.MSG_WAITALL)
            assert struct.unpack(">I", reply[28:32]) == (10052,)  # BADSESSION
        site.watch.catch_up()
    assert {one.id for one in site.watch.seen[-1].sessions} == known
    from_host = [one for one in site.watch.connections("tcp", first) if one.client == "10.77.0.254"]
    assert sum(one.operations for one in from_host) == 100
    assert {one.sessions for one in from_host} == {0}


@pytest.fixture(scope="module")
def slow(site: Site) -> Iterator[Site]:
    """The server has a slow disk, at /slow."""
    threads = site.server.run(f"cat {THREADS}", check=True).stdout.strip()
    granted = site.server.run(f"cat {CREDITS}", check=True).stdout.strip()
    with slow_disk(site.server, STORAGE_NS):
        yield site
        site.server.run(f"echo {threads} > {THREADS}; echo {granted} > {CREDITS}", check=True)


@pytest.mark.alone
@pytest.mark.parametrize("transport", MOUNTS)
def test_latency_is_the_clients(slow: Site, transport: str) -> None:
    """By the client's own clock, in the middle of a load. The disk takes so long that the way is
    short beside it.
    """
    with (
        mounted(slow.client, transport, "/slow", "/inside/slow") as at,
        slow.client.command(writes(at, JOBS, 10_000)) as load,
    ):
        slow.client.wait_until(f"[ -s {at}/f{JOBS} ]", LIMIT_S)
        seen, rtts_ns = watched_for_a_while(slow, transport)
        load.kill(signal.SIGKILL)
        load.wait(LIMIT_S)
    assert min(seen.count, len(rtts_ns)) >= ROUND_TRIPS
    for part, found_ns in ((0.5, seen.p50_ns), (0.99, seen.p99_ns)):
        assert found_ns == pytest.approx(rtts_ns[int(part * len(rtts_ns))], rel=NEAR), part


def watched_for_a_while(site: Site, transport: str) -> tuple[Times, list[int]]:
    """Returns the second interval of a watch that begins now, and how long calls took meanwhile by
    the client's tracepoint, in order. In the first one the server has the watch to load, too.
    """
    tracing = "/sys/kernel/tracing"
    event = f"{tracing}/events/sunrpc/rpc_stats_latency/enable"
    watch = f"exec env {site.livedma} watch --inside --json --interval {WHILE_S}s --count 2"
    site.client.run(f"echo mono > {tracing}/trace_clock; echo 1 > {event}", check=True)
    try:
        with site.server.command(watch) as command:
            done = command.wait(LIMIT_S)
    finally:
        site.client.run(f"echo 0 > {event}")
    trace = site.client.run(f"cat {tracing}/trace", check=True).stdout
    site.client.run(f"echo local > {tracing}/trace_clock", check=True)  # it empties the buffer
    found = json.loads(done.stdout.splitlines()[1])
    client_s, server_s = (uptime_s(one) for one in (site.client, site.server))
    end_s = found["at_s"] + client_s - server_s
    calls = re.findall(r" (\d+\.\d+): rpc_stats_latency: .* rtt=(\d+) ", trace)
    (times,) = [
        Times(**one["latency"])
        for one in found["connections"]
        if one["transport"] == transport and one["operations"] >= ROUND_TRIPS
    ]
    return times, sorted(
        int(rtt) * 1000 for at, rtt in calls if end_s - found["interval_s"] < float(at) <= end_s
    )


def uptime_s(guest: Guest) -> float:
    return float(guest.run("cut -d' ' -f1 /proc/uptime", check=True).stdout)


def limit_of(site: Site, transport: str, command: str) -> str:
    """Returns the limit of the busiest connection that is named most often while a command runs,
    which goes on until enough limits were named.
    """
    site.watch.catch_up()
    first = len(site.watch.seen)
    found: Counter[str] = Counter()
    end_s = time.monotonic() + LIMIT_S
    while found.total() < NAMED_LEAST:
        assert time.monotonic() < end_s, found
        site.client.run(command, LIMIT_S, check=True)
        site.watch.catch_up()
        calls: Counter[int] = Counter()
        for one in site.watch.connections(transport, first):
            calls[one.number] += one.operations
        ((number, _),) = calls.most_common(1)
        found = Counter(
            one["limit"]
            for named in site.watch.limits[first:]
            for one in named
            if one["connection"] == number
        )
    return found.most_common(1)[0][0]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("threads", "granted", "limit"),
    [(1, 64, "threads"), (16, 64, "storage"), (16, 4, "credits")],
    ids=["few threads", "a slow disk", "few credits"],
)
def test_the_limit_is_named(slow: Site, threads: int, granted: int, limit: str) -> None:
    slow.server.run(f"echo {threads} > {THREADS}; echo {granted} > {CREDITS}", check=True)
    slow.client.run("umount /inside/rdma", check=True)  # credits are those of a new connection
    try:
        with mounted(slow.client, "rdma", "/slow", "/inside/slow") as at:
            slow.watch.catch_up()  # what was written before was not to the slow disk
            first = len(slow.watch.seen)
            assert limit_of(slow, "rdma", writes(at, JOBS, 16 if threads > 1 else 10)) == limit
            rows = [one for one in slow.watch.connections("rdma", first) if one.kernel]
            storage = [one.kernel.storage for one in rows if one.kernel and one.written_bytes]
            assert not [one for one in storage if one.count and one.p50_ns <= STORAGE_NS * 0.9]
    finally:
        slow.client.run(
            f"mount -t nfs -o {MOUNTS['rdma']} 10.77.0.1:/ /inside/rdma",
            check=True,
        )


def test_full_cpus_are_named(site: Site) -> None:
    spin = "for i in 1 2 3; do (while :; do :; done) & done; wait"
    with site.server.command(spin):
        work = writes("/inside/tcp", 4, 60).replace("4k", "16k")
        assert limit_of(site, "tcp", work) == "CPU"


def test_nothing_stays_behind(guests: Lab, site: Site) -> None:
    attached = "grep -c -E '^(svc_process|nfsd_dispatch) ' /sys/kernel/tracing/enabled_functions"
    assert guests.a.run(attached).stdout.strip() == "2"
    site.watch.close()
    wait_until(lambda: guests.a.run(attached).stdout.strip() == "0")


def wait_until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.2)
