# SPDX-License-Identifier: BSD-2-Clause
"""Views of a watch, made up: the same each time."""

from __future__ import annotations

import random
from dataclasses import replace

from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.diagnose.nfsd import diagnose_kernel
from livedma.monitor.snapshot import (
    Connection,
    Host,
    InsideKernel,
    KernelHost,
    Losses,
    Session,
    Snapshot,
    Times,
)
from livedma.ui.watch.views import View

__all__ = ["SENTENCES", "WALL_S", "inside_nfsd", "nothing", "view"]

WALL_S = 1_795_000_000.0
SENTENCES = (
    "3 connections are there that this has not learnt yet: a connection that was made before tells "
    "itself by two answered calls of a session, or four without one",
    "mlx5_0 on eth0 is an RDMA NIC: what it offloads passes no hook",
)


def nothing() -> View:
    snapshot = Snapshot(1.0, WALL_S, 1.0, "bpf", (), (), Host(None, None, None))
    return View(snapshot, "wire", "lo, eth0", (), ())


def view(sessions: int, connections: int = 3, *, seed: int = 1, at_s: float = 1.0) -> View:
    """Ids are as the kernel's server makes them: they begin alike."""
    chance = random.Random(seed)
    made = []
    for index in range(sessions):
        operations = chance.randrange(1, 400)
        times = Times(operations, operations * 10**6, 9 * 10**5, chance.randrange(10**7), 2 * 10**7)
        id_ = (b"\x01\x02\x03\x04" + index.to_bytes(4, "little") + bytes(8)).hex()
        read, written = operations * 65536, operations * chance.randrange(65536)
        made.append(
            Session(id_, (1 + index % connections,), operations, read, written, times, index % 8)
        )
    found = [_connection(1 + number, made) for number in range(connections)]
    slow = Diagnosis(2, at_s, True, Limit.CREDITS, "all credits are in use (64 of 64)")
    snapshot = Snapshot(
        at_s,
        WALL_S + at_s,
        1.0,
        "bpf",
        tuple(found),
        tuple(made),
        Host(None, None, None),
        Losses(replies=3, early=12),
    )
    return View(snapshot, "wire", "lo, eth0", SENTENCES, (slow,))


def inside_nfsd(sessions: int, connections: int = 3, *, seed: int = 1) -> View:
    """As a source inside the kernel's server shows it: the last connection is over TCP."""
    seen = view(sessions, connections, seed=seed).snapshot
    found = [
        replace(one, retransmissions=0, naks=0, credits_asked=128, latency=_TIMES, kernel=_KERNEL)
        for one in seen.connections
    ]
    over_tcp = replace(_KERNEL, last_credits=0, contexts_made=0, send_waits=Times())
    found[-1] = replace(
        found[-1],
        transport="tcp",
        client_port=700,
        client_qpn=0,
        credits_granted=0,
        kernel=over_tcp,
    )
    host = KernelHost(threads=16, serving=4.5, cpus=2, cpus_busy=0.35, cpus_used=0.6, cpu_waiting=0)
    snapshot = replace(
        seen,
        source="nfsd",
        connections=tuple(found),
        host=Host(None, None, None, kernel=host),
        losses=Losses(early=12),
    )
    limits = diagnose_kernel(snapshot)
    return View(snapshot, "nfsd", "the kernel's nfsd", SENTENCES[1:], (), limits)


_TIMES = Times(500, 10**10, 2 * 10**7, 3 * 10**7, 4 * 10**7)
_KERNEL = InsideKernel(
    executing=3,
    serving_ns=9 * 10**9,
    thread_waits=Times(500, 10**9, 2 * 10**6, 3 * 10**6, 4 * 10**6),
    storage=Times(400, 8 * 10**9, 2 * 10**7, 25 * 10**6, 3 * 10**7),
    fetches=Times(),
    send_waits=Times(5, 10**7, 10**6, 4 * 10**6, 5 * 10**6),
    last_credits=100,
    contexts_made=2,
    receives_failed=0,
)


def _connection(number: int, sessions: list[Session]) -> Connection:
    its = [one for one in sessions if number in one.connections]
    ret = Connection(
        number=number,
        server="10.80.0.1",
        server_qpn=16 + number,
        client=f"10.80.0.{number + 1}",
        client_qpn=32 + number,
        sessions=len(its),
        operations=sum(one.operations for one in its),
        read_bytes=sum(one.read_bytes for one in its),
        written_bytes=sum(one.written_bytes for one in its),
        latency=Times(500, 5 * 10**8, 9 * 10**5, 3 * 10**6, 2 * 10**7),
        in_flight=12,
        credits_asked=64,
        credits_granted=64,
        rnr_naks=0,
        naks=number - 1,
        retransmissions=3 * (number - 1),
        unanswered=0,
    )
    return replace(ret, learnt_s=WALL_S - 500) if number == 1 else ret
