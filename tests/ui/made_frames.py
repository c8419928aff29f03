# SPDX-License-Identifier: BSD-2-Clause
"""Frames and events of a server that is made up: the same figures each time."""

from __future__ import annotations

import math
from dataclasses import replace

from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.events import Event, Kind
from livedma.control.show.frame import Frame, Part, WindowMap
from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideSession,
    Session,
    Snapshot,
    Times,
)

MIB = 1 << 20
MS = 1_000_000
WALL_S = 1_700_000_000.0  # 22:13:20 in UTC
SENTENCE = (
    "requests wait 4.0 ms for DMA memory (storage 43.4 ms, CPU 45%, 198 of 200 credits): "
    "all 184 buffers are taken, 8 more are wanted"
)


def times(mean_ns: int, count: int = 100) -> Times:
    if not count:
        return Times()
    return Times(count, mean_ns * count, mean_ns, 2 * mean_ns, 3 * mean_ns)


def session(
    number: int,
    *,
    connections: tuple[int, ...] = (1,),
    operations: int = 30,
    wait_ns: int = 0,
    inside: bool = True,
) -> Session:
    """Ids begin with their number, so that people and tests can tell them."""
    size = operations * 65536
    return Session(
        id=f"{number:04x}" + "c0ffee" * 4 + "beef",
        connections=connections,
        operations=operations,
        read_bytes=size - size // 4,
        written_bytes=size // 4,
        latency=times((20 + number % 7) * MS, operations),
        in_flight=min(3, operations),
        inside=InsideSession(64, 64, 3, wait_ns * operations, 20 * MS * operations, 64)
        if inside
        else None,
    )


def connection(
    number: int = 1, *, client: str = "10.80.0.2", mapped: int = 14 * MIB, inside: bool = True
) -> Connection:
    none = Times()
    return Connection(
        number=number,
        server="10.80.0.1",
        server_qpn=17,
        client=client,
        client_qpn=18,
        sessions=3,
        operations=1950,
        read_bytes=96 * MIB,
        written_bytes=32 * MIB,
        latency=times(31 * MS),
        in_flight=198,
        credits_asked=200,
        credits_granted=200,
        rnr_naks=0,
        naks=0,
        retransmissions=0,
        unanswered=0,
        inside=Inside(
            16 * MIB, mapped, 2 * MIB, 4 * MIB, 65536, 184, 184, 8, 200, 256, 200, 0, 198,
            none, none, none, none,
        )
        if inside
        else None,
        client_port=831 + number,
        client_name="alpha",
    )  # fmt: skip


def window(number: int = 1, mapped: int = 14 * MIB) -> WindowMap:
    data = mapped - 2 * MIB
    return WindowMap(
        number,
        16 * MIB,
        mapped,
        (
            Part(0, 2 * MIB, "calls", 64, 16),
            Part(2 * MIB, data, "data", data // 65536, data * 3 // 4 // 65536),
        ),
    )


def slow(number: int = 1) -> Diagnosis:
    return Diagnosis(number, 0.0, True, Limit.MEMORY, SENTENCE, {"memory_wait_ms": 4.0})


def fine(number: int = 1) -> Diagnosis:
    return Diagnosis(number, 0.0, False, Limit.NOTHING, "it does all that is asked of it: 3,900/s")


def frame(
    number: int = 1,
    *,
    sessions: tuple[Session, ...] | None = None,
    connections: tuple[Connection, ...] = (connection(),),
    diagnoses: tuple[Diagnosis, ...] = (slow(),),
    windows: tuple[WindowMap, ...] = (window(),),
    host: Host | None = None,
) -> Frame:
    at_s = 1000.0 + number / 2
    if sessions is None:
        sessions = (
            session(1, operations=30, wait_ns=4 * MS),
            session(2, operations=round(20 + 10 * math.sin(number / 5))),
            session(3, operations=0),
        )
    return Frame(
        number=number,
        server="/srv/data",
        started_s=WALL_S - 3600,
        watching="bpf+server",
        policy="extend",
        dry_run=False,
        snapshot=Snapshot(
            at_s=at_s,
            wall_s=WALL_S + number / 2,
            interval_s=0.5,
            source="server",
            connections=connections,
            sessions=sessions,
            host=host or Host(0.45, 14 * MIB, None),
        ),
        diagnoses=diagnoses,
        windows=windows,
        last_event=0,
    )


def restarted(one: Frame) -> Frame:
    return replace(one, started_s=WALL_S + 1)


def many(number: int = 1, count: int = 1000) -> Frame:
    """So many sessions on four connections; each frame has other figures."""
    return frame(
        number,
        connections=tuple(connection(1 + n, client=f"10.80.0.{2 + n}") for n in range(4)),
        diagnoses=(slow(1), fine(2), fine(3), fine(4)),
        windows=tuple(window(1 + n) for n in range(4)),
        sessions=tuple(
            session(n, connections=(1 + n % 4,), operations=1 + (n * 7919 + number * 31) % 97)
            for n in range(count)
        ),
    )


def event(number: int, kind: Kind, text: str, connection: int | None = 1) -> Event:
    return Event(number, 1000.0 + number, WALL_S + number, kind, connection, text)


EVENTS = (
    event(1, "source", "snapshots come from BPF on the wire, and the server itself", None),
    event(2, "degraded", "64 sessions, 256 MB/s, p99 62.1 ms, 198 calls in flight"),
    event(3, "why", SENTENCE),
    event(4, "plan", "extend: map 1 MiB more"),
    event(5, "done", "in 12.9 ms: mapped 13.1 MiB -> 14.1 MiB, 200 buffers, 200 credits"),
)
