# SPDX-License-Identifier: BSD-2-Clause
"""Inside the kernel's NFS server, while it serves the kernel's client: `livedma watch --inside`
runs in the server's guest and counts exactly what the client counts, over RDMA and TCP.
"""

from __future__ import annotations

import json
import secrets
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from guest_package import put_package
from livedma.lab.channel import Command
from livedma.lab.guest import Guest, Lab
from livedma.monitor.snapshot import Connection, Snapshot

pytestmark = pytest.mark.slow

LIMIT_S = 400
STORAGE_NS = 20_000_000
#: Of two mounts with one minor version, the client would make one session.
MOUNTS = {"rdma": "vers=4.1,rdma,port=20049", "tcp": "vers=4.2,proto=tcp"}
SLOW_DISK = f"""set -e
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 irqmode=2 completion_nsec={STORAGE_NS}
mkfs.ext4 -q -O ^has_journal,^metadata_csum /dev/nullb0 64M
mkdir -p /export/slow
mount /dev/nullb0 /export/slow
exportfs -o rw,fsid=7,no_root_squash,insecure,no_subtree_check '*:/export/slow'"""
NO_SLOW_DISK = """exportfs -u '*:/export/slow'; exportfs -f
umount /export/slow || umount -l /export/slow; rmmod null_blk"""
THREADS = "/proc/fs/nfsd/threads"
CREDITS = "/proc/sys/sunrpc/svc_rdma/max_requests"


class Work(NamedTuple):
    """What was done by one transport: calls, and bytes read and written."""

    calls: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def since(self, before: Work) -> Work:
        return Work(*(now - then for now, then in zip(self, before, strict=True)))


class Watch:
    """Reads the snapshots of a `livedma watch --inside --json`."""

    def __init__(self, server: Guest, command: Command) -> None:
        self._server, self._command = server, command
        self._read = 0
        self.seen: list[Snapshot] = []
        self.limits: list[list[dict[str, Any]]] = []  #: of each snapshot
        self.unseen: list[str] = []

    def catch_up(self) -> Snapshot:
        """Waits for a snapshot of now or later, and returns it."""
        now_s = float(self._server.run("cut -d' ' -f1 /proc/uptime", check=True).stdout)
        end_s = time.monotonic() + LIMIT_S
        while not self.seen or self.seen[-1].at_s <= now_s:
            assert time.monotonic() < end_s, self._command.text[-500:]
            assert self._command.status is None, self._command.text[-2000:]
            self._command.read(1.0)
            self._take()
        return self.seen[-1]

    def _take(self) -> None:
        *lines, _ = self._command.output[self._read :].split(b"\n")
        for line in lines:
            self._read += len(line) + 1
            found = json.loads(line)
            self.limits.append(found.pop("limits"))
            self.unseen = found.pop("unseen")
            del found["where"]
            self.seen.append(Snapshot.from_json(found))

    def close(self) -> None:
        self._command.close()

    def connections(self, transport: str, first: int = 0) -> list[Connection]:
        """Returns a transport's connections of all snapshots from the first on."""
        return [
            one
            for snapshot in self.seen[first:]
            for one in snapshot.connections
            if one.transport == transport
        ]

    def work(self, transport: str) -> Work:
        """Returns the sum of a transport's sessions, which has to be that of its connections."""
        by_connection, by_session = Work(), Work()
        for snapshot in self.seen:
            numbers = {one.number for one in snapshot.connections if one.transport == transport}
            for one in snapshot.connections:
                if one.number in numbers:
                    by_connection = _plus(by_connection, one)
            for session in snapshot.sessions:
                if numbers & set(session.connections):
                    by_session = _plus(by_session, session)
        assert by_session[1:] == by_connection[1:]
        return by_session


def _plus(work: Work, one: Any) -> Work:
    return Work(
        work.calls + one.operations,
        work.read_bytes + one.read_bytes,
        work.written_bytes + one.written_bytes,
    )


class Site(NamedTuple):
    """The two guests: nfsd and the watch in the one, the kernel's client in the other."""

    server: Guest
    client: Guest
    watch: Watch
    lab: Lab


def counted(client: Guest, at: str) -> tuple[Work, float]:
    """Returns what the client counts for a mount, and how long its calls took together, in ms."""
    text = client.run("cat /proc/self/mountstats", check=True).stdout
    mount = text.split(f" mounted on {at} ")[1].split("\ndevice ")[0].split("\n")
    fields = {
        line.split(":")[0].strip(): line.split(":")[1].split() for line in mount if ":" in line
    }
    round_trips = [values[6] for name, values in fields.items() if name.isupper()]
    calls = int(fields["xprt"][7])  # those that were answered; the first word is the transport
    _, _, _, _, read, written, *_ = map(int, fields["bytes"])
    return Work(calls, read, written), sum(map(float, round_trips))


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


@contextmanager
def mounted(client: Guest, transport: str, of: str = "/", at: str = "") -> Iterator[str]:
    at = at or f"/inside/{transport}"
    client.run(
        f"mkdir -p {at} && mount -t nfs -o {MOUNTS[transport]} 10.77.0.1:{of} {at}",
        check=True,
    )
    try:
        yield at
    finally:
        client.run(f"umount {at}", check=True)


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
            yield Site(a, b, watch, guests)


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
    site.server.run(SLOW_DISK, LIMIT_S, check=True)
    yield site
    site.server.run(f"echo {threads} > {THREADS}; echo {granted} > {CREDITS}", check=True)
    site.server.run(NO_SLOW_DISK, check=True)


def writes(at: str, jobs: int, count: int) -> str:
    each = f"dd if=/dev/zero of={at}/f$i bs=4k count={count} oflag=direct,sync conv=notrunc"
    return f"for i in $(seq {jobs}); do {each} 2>/dev/null & done; wait"


def limits(site: Site, transport: str, command: str) -> Counter[str]:
    """Returns the limits of the busiest connection that were named while a command ran, and how
    often each was.
    """
    site.watch.catch_up()
    first = len(site.watch.seen)
    site.client.run(command, LIMIT_S, check=True)
    site.watch.catch_up()
    calls: Counter[int] = Counter()
    for one in site.watch.connections(transport, first):
        calls[one.number] += one.operations
    ((number, _),) = calls.most_common(1)
    return Counter(
        one["limit"]
        for named in site.watch.limits[first:]
        for one in named
        if one["connection"] == number
    )


def most(found: Counter[str]) -> str:
    assert found.total() >= 3, found
    return found.most_common(1)[0][0]


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
            first = len(slow.watch.seen)
            assert most(limits(slow, "rdma", writes(at, 8, 16 if threads > 1 else 10))) == limit
            rows = [one for one in slow.watch.connections("rdma", first) if one.kernel]
            storage = [one.kernel.storage for one in rows if one.kernel and one.written_bytes]
            assert all(one.p50_ns > STORAGE_NS * 0.9 for one in storage if one.count)
    finally:
        slow.client.run(
            f"mount -t nfs -o {MOUNTS['rdma']} 10.77.0.1:/ /inside/rdma",
            check=True,
        )


def test_full_cpus_are_named(site: Site) -> None:
    spin = "for i in 1 2 3; do (while :; do :; done) & done; wait"
    with site.server.command(spin):
        named = limits(site, "tcp", writes("/inside/tcp", 4, 60).replace("4k", "16k"))
    assert most(named) == "CPU"


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
