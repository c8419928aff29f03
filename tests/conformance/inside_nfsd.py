# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's NFS server with `livedma watch --inside` beside it in one guest, the kernel's client
in the other, and a slow disk for them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from livedma.lab.channel import Command
from livedma.lab.guest import Guest, Lab
from livedma.monitor.snapshot import Connection, Snapshot

LIMIT_S = 400
#: Of two mounts with one minor version, the client would make one session.
MOUNTS = {"rdma": "vers=4.1,rdma,port=20049", "tcp": "vers=4.2,proto=tcp"}
NO_SLOW_DISK = """exportfs -u '*:/export/slow'; exportfs -f
umount /export/slow || umount -l /export/slow; rmmod null_blk"""


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
    livedma: str  #: how the command begins in the server


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


@contextmanager
def slow_disk(server: Guest, delay_ns: int) -> Iterator[None]:
    """At /slow, on which each access takes so long."""
    options = f"nr_devices=1 gb=1 memory_backed=1 irqmode=2 completion_nsec={delay_ns}"
    server.run(
        f"""set -e
        modprobe null_blk {options}
        mkfs.ext4 -q -O ^has_journal,^metadata_csum /dev/nullb0 64M
        mkdir -p /export/slow
        mount /dev/nullb0 /export/slow
        exportfs -o rw,fsid=7,no_root_squash,insecure,no_subtree_check '*:/export/slow'""",
        LIMIT_S,
        check=True,
    )
    try:
        yield
    finally:
        server.run(NO_SLOW_DISK, check=True)


def writes(at: str, jobs: int, count: int) -> str:
    each = f"dd if=/dev/zero of={at}/f$i bs=4k count={count} oflag=direct,sync conv=notrunc"
    return f"for i in $(seq {jobs}); do {each} 2>/dev/null & done; wait"
