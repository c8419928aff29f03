# SPDX-License-Identifier: BSD-2-Clause
"""A server that is not there: frames with as many sessions as are wanted, whenever a test says."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from livedma.control.act.controller import View
from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.diagnose.room import SessionRoom
from livedma.control.events import Events
from livedma.control.show.frame import Frame, Part, WindowMap
from livedma.control.show.history import History
from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideSession,
    Session,
    Snapshot,
    Times,
)
from livedma.ui.web.server import Web

TOKEN = "a token for tests"
_MIB = 1 << 20
_INTERVAL_S = 0.5


def _times(count: int, p50_ns: int) -> Times:
    return Times(count, count * p50_ns, p50_ns, 2 * p50_ns, 3 * p50_ns)


def _session(number: int, turn: int, connections: int) -> Session:
    operations = 20 + int(15 * math.sin(number + turn / 5)) + number % 7
    p50_ns = 20_000_000 + 40_000 * (number % 100)
    return Session(
        id=f"{number * 2654435761 % 2**32:08x}{number:024x}",
        connections=(1 + number % connections,) if connections else (),
        operations=operations,
        read_bytes=operations * 65536,
        written_bytes=0,
        latency=_times(operations, p50_ns),
        in_flight=number % 4,
        inside=InsideSession(
            slots=4,
            slots_target=4,
            slots_used_most=1 + number % 4,
            memory_waited_ns=operations * 1_000_000 * (number % 5),
            storage_ns=operations * 18_000_000,
        ),
    )


def _connection(number: int, sessions: list[Session], mapped: int) -> Connection:
    mine = [one for one in sessions if number in one.connections]
    operations = sum(one.operations for one in mine)
    buffers = (mapped - _MIB) // 65536
    return Connection(
        number=number,
        server="10.80.0.1",
        server_qpn=17,
        client=f"10.80.0.{1 + number}",
        client_qpn=18,
        sessions=len(mine),
        operations=operations,
        read_bytes=sum(one.read_bytes for one in mine),
        written_bytes=0,
        latency=_times(operations, 22_000_000),
        in_flight=50,
        credits_asked=256,
        credits_granted=64,
        rnr_naks=0,
        naks=0,
        retransmissions=0,
        unanswered=0,
        inside=Inside(
            window_bytes=16 * _MIB,
            mapped_bytes=mapped,
            room_bytes=15 * _MIB - mapped,
            first_bytes=4 * _MIB,
            buffer_bytes=65536,
            buffers=buffers,
            buffers_taken=buffers - 3,
            buffers_wanted=0,
            credits=64,
            credits_max=256,
            receives_posted=64,
            receives_late=0,
            in_progress=50,
            memory_waits=_times(10, 1_000_000),
            send_waits=Times(),
            storage=_times(operations, 20_000_000),
            storage_queue=Times(),
        ),
    )


@dataclass
class FakeFeed:
    """What `livedma.control.show.feed.Feed` is to the page; `push` makes the next frame."""

    sessions: int = 8
    connections: int = 1
    mapped_bytes: int = 4 * _MIB
    limit: Limit = Limit.MEMORY
    room: SessionRoom | None = None
    events: Events = field(default_factory=Events)
    history: History = field(default_factory=History)
    frame: Frame | None = None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._wall_s = time.time()

    def push(self) -> Frame:
        number = 1 if self.frame is None else self.frame.number + 1
        sessions = [_session(one, number, self.connections) for one in range(self.sessions)]
        numbers = range(1, self.connections + 1)
        frame = Frame(
            number=number,
            server="/srv/data",
            started_s=self._wall_s - 754,
            watching="bpf+server",
            policy="extend",
            dry_run=False,
            snapshot=Snapshot(
                at_s=time.monotonic(),
                wall_s=self._wall_s + number * _INTERVAL_S,
                interval_s=_INTERVAL_S,
                source="server",
                connections=tuple(_connection(one, sessions, self.mapped_bytes) for one in numbers),
                sessions=tuple(sessions),
                host=Host(0.24, self.connections * self.mapped_bytes, 256 * _MIB),
            ),
            diagnoses=tuple(
                Diagnosis(
                    one, 0.0, True, self.limit, "requests wait 3.7 ms for DMA memory", {}, self.room
                )
                for one in numbers
            ),
            windows=tuple(self._window(one) for one in numbers),
            last_event=self.events.last,
        )
        self.history.add(frame)
        with self._changed:
            self.frame = frame
            self._changed.notify_all()
        return frame

    def _window(self, connection: int) -> WindowMap:
        data = self.mapped_bytes - _MIB
        parts = (
            Part(0, _MIB, "calls", 64, 40),
            Part(_MIB, data, "data", data // 65536, data // 65536 - 3),
        )
        return WindowMap(connection, 16 * _MIB, self.mapped_bytes, parts)

    def next(self, after: int = 0, wait_s: float = 1.0) -> Frame | None:
        def newer() -> Frame | None:
            return self.frame if self.frame is not None and self.frame.number > after else None

        with self._changed:
            self._changed.wait_for(newer, wait_s)
            return newer()


@dataclass
class _Controller:
    """As much of the controller as `GET /why` asks."""

    feed: FakeFeed

    def view(self, _: float = 0.0) -> View | None:
        frame = self.feed.frame
        return None if frame is None else View(frame.snapshot, frame.diagnoses)


@dataclass
class _Hands:
    done: list[tuple[Any, ...]] = field(default_factory=list)

    def extend(self, connection: int, length: int) -> str:
        self.done.append(("extend", connection, length))
        return "mapped 4 MiB -> 8 MiB"

    def shrink(self, connection: int, length: int) -> str:
        self.done.append(("shrink", connection, length))
        return "4 MiB go as they become free"

    def set_policy(self, name: str) -> str:
        self.done.append(("policy", name))
        return f"the policy is {name}"


@dataclass(frozen=True)
class Shown:
    """A page of a fake feed. done: what was asked for by hand."""

    address: str
    feed: FakeFeed
    done: list[tuple[Any, ...]]


@contextmanager
def shown(feed: FakeFeed, port: int = 0) -> Iterator[Shown]:
    sock = socket.create_server(("127.0.0.1", port))
    hands = _Hands()
    it = SimpleNamespace(controller=_Controller(feed), feed=feed, by_hand=hands)
    with Web(cast(Any, it), sock, TOKEN):
        yield Shown(f"http://127.0.0.1:{sock.getsockname()[1]}/", feed, hands.done)
