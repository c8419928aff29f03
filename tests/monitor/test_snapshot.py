# SPDX-License-Identifier: BSD-2-Clause
"""Snapshots survive the control socket: what JSON brings back is what went."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideKernel,
    InsideSession,
    KernelHost,
    Losses,
    Session,
    Snapshot,
    Times,
)

TIMES = Times(count=4, sum_ns=1000, p50_ns=200, p99_ns=400, max_ns=410)
INSIDE = Inside(
    window_bytes=16 << 20,
    mapped_bytes=4 << 20,
    room_bytes=12 << 20,
    first_bytes=4 << 20,
    buffer_bytes=65536,
    buffers=56,
    buffers_taken=50,
    buffers_wanted=3,
    credits=64,
    credits_max=1024,
    receives_posted=10,
    receives_late=1,
    in_progress=54,
    memory_waits=TIMES,
    send_waits=Times(),
    storage=replace(TIMES, count=5),
    storage_queue=replace(TIMES, count=6),
)
CONNECTION = Connection(
    number=7,
    server="10.0.0.1",
    server_qpn=17,
    client="fd00::2",
    client_qpn=18,
    sessions=1,
    operations=4,
    read_bytes=100,
    written_bytes=20,
    latency=TIMES,
    in_flight=2,
    credits_asked=128,
    credits_granted=64,
    rnr_naks=1,
    naks=2,
    retransmissions=3,
    unanswered=4,
    inside=INSIDE,
)
SESSION = Session(
    id="00ff" * 8,
    connections=(7, 9),
    operations=4,
    read_bytes=100,
    written_bytes=20,
    latency=TIMES,
    in_flight=2,
    inside=InsideSession(
        slots=8,
        slots_target=16,
        slots_used_most=8,
        memory_waited_ns=5,
        storage_ns=6,
        slots_asked=32,
    ),
)
KERNEL = InsideKernel(
    executing=2,
    serving_ns=5000,
    thread_waits=TIMES,
    storage=replace(TIMES, count=5),
    fetches=replace(TIMES, count=6),
    send_waits=Times(),
    last_credits=3,
    contexts_made=1,
    receives_failed=2,
)
KERNEL_HOST = KernelHost(
    threads=8, serving=2.5, cpus=4, cpus_busy=0.5, cpus_used=1.5, cpu_waiting=0.25
)
SNAPSHOT = Snapshot(
    at_s=12.5,
    wall_s=1.7e9,
    interval_s=0.1,
    source="bpf+server",
    connections=(CONNECTION, replace(CONNECTION, number=9, inside=None)),
    sessions=(SESSION, replace(SESSION, id="aa" * 16, inside=None)),
    host=Host(cpu_busy=0.5, mapped_bytes=4 << 20, budget_bytes=None, refuses_sessions=True),
    losses=Losses(connections=1, sessions=2, calls=3, replies=4, unreadable=5),
)


def through_json(snapshot: Snapshot) -> Snapshot:
    return Snapshot.from_json(json.loads(json.dumps(asdict(snapshot))))


def test_all_of_it_comes_back() -> None:
    assert through_json(SNAPSHOT) == SNAPSHOT
    assert through_json(replace(SNAPSHOT, host=Host(None, None, None))).host.cpu_busy is None
    inside = replace(
        SNAPSHOT,
        source="nfsd",
        connections=(replace(CONNECTION, inside=None, kernel=KERNEL),),
        host=Host(None, None, None, kernel=KERNEL_HOST),
    )
    assert through_json(inside) == inside


def test_parts_are_found_by_their_names() -> None:
    assert SNAPSHOT.connection(7) == CONNECTION
    assert SNAPSHOT.session(SESSION.id) == SESSION
    assert SNAPSHOT.connection(8) is SNAPSHOT.session("bb") is None
    assert (CONNECTION.bytes, SESSION.bytes, TIMES.mean_ns, Times().mean_ns) == (120, 120, 250, 0)
