# SPDX-License-Identifier: BSD-2-Clause
"""One snapshot from the wire and the server; what happens when one of them fails, or time does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from tests.control.plant import Pipe, Plant, only

from livedma.control.events import Events
from livedma.control.observe.observer import Observer
from livedma.errors import PrivilegeError
from livedma.monitor.snapshot import Losses, Snapshot, Times


class Server:
    """The server's own view of a plant; its clocks may be tampered with."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.change: Callable[[Snapshot], Snapshot] = lambda seen: seen

    def snapshot(self) -> Snapshot:
        return self.change(self.plant.observe())


class Wire:
    """What BPF would see of it: numbers of its own, and latencies that are the wire's."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.is_attached = True
        self.is_closed = False
        self.error: Exception | None = None
        self.learned: list[tuple[str, int, str, int]] = []
        self.knows_all = True

    def learn(self, server: str, server_qpn: int, client: str, client_qpn: int) -> bool:
        self.learned.append((server, server_qpn, client, client_qpn))
        return True

    def snapshot(self) -> Snapshot:
        if self.error is not None:
            raise self.error
        seen = self._server.plant.observe()
        connections = tuple(
            replace(one, number=77, latency=Times(3, 30, 10, 10, 10), inside=None)
            for one in seen.connections
            if self.knows_all
        )
        sessions = tuple(
            replace(one, connections=(77,), inside=None, latency=Times(3, 30, 10, 10, 10))
            for one in seen.sessions
        )
        return replace(
            seen,
            source="bpf",
            connections=connections,
            sessions=sessions,
            losses=Losses(calls=4),
        )

    def close(self) -> None:
        self.is_closed = True


class AtOnce(Executor):
    """Does what it is given before anybody can ask."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Set:
    """A server, what is made of it, and a clock that moves by hand."""

    def __init__(self, *, may_watch: bool = True) -> None:
        self.now_s = 100.0
        self.may_watch = may_watch
        self.events = Events()
        self.server = Server(Plant([Pipe(wanted=10)]))
        self.wires: list[Wire] = []
        self.observer = Observer(
            self.server, self._open, self.events, lambda: self.now_s, opener=AtOnce()
        )

    def _open(self) -> Wire:
        if not self.may_watch:
            raise PrivilegeError("loading BPF programs needs root")
        self.wires.append(Wire(self.server))
        return self.wires[-1]

    def observe(self) -> Snapshot:
        self.now_s += 0.1
        seen = self.observer.observe()
        assert seen is not None
        return seen

    def sources(self) -> list[str]:
        return [one.text for one in only(self.events, "source")]


def test_the_wire_measures_and_the_server_knows_what_for() -> None:
    seen = Set().observe()
    (connection,), (session,) = seen.connections, seen.sessions
    assert seen.source == "bpf+server" and seen.losses.calls == 4
    assert (connection.number, connection.latency.count) == (1, 3)
    assert connection.inside is not None and connection.inside.buffers == 56
    assert session.connections == (1,) and session.latency.count == 3
    assert session.inside is not None
    assert seen.host.mapped_bytes == 4 << 20


def test_a_connection_that_the_wire_does_not_know_is_taught_and_the_servers_own_until_then() -> (
    None
):
    stage = Set()
    stage.observe()
    stage.wires[0].knows_all = False
    (connection,) = stage.observe().connections
    assert connection.latency.count != 3
    assert stage.wires[0].learned == [("10.0.0.1", 101, "10.0.0.2", 201)]


def test_without_privilege_the_server_alone_is_asked_and_bpf_tried_again_later() -> None:
    stage = Set(may_watch=False)
    assert stage.observe().source == stage.observe().source == "server"
    stage.may_watch = True
    assert stage.observe().source == "server"
    stage.now_s += 5
    assert stage.observe().source == "bpf+server"
    assert stage.sources() == [
        "snapshots come from the server itself, without BPF on the wire: "
        "loading BPF programs needs root",
        "snapshots come from BPF on the wire, and the server itself",
    ]


def test_bpf_that_somebody_detached_is_noticed_and_comes_back() -> None:
    stage = Set()
    stage.observe()
    stage.wires[0].is_attached = False
    stage.now_s += 1
    assert stage.observe().source == "server"
    assert stage.wires[0].is_closed
    assert stage.sources()[1].endswith("another program has detached its BPF programs")
    stage.now_s += 5
    assert stage.observe().source == "bpf+server"
    assert len(stage.wires) == 2


def test_a_monitor_that_fails_is_left_for_the_server() -> None:
    stage = Set()
    stage.observe()
    stage.wires[0].error = OSError(24, "Too many open files")
    assert stage.observe().source == "server"
    assert "Too many open files" in stage.sources()[1]


def test_it_is_tried_less_and_less_often() -> None:
    stage = Set(may_watch=False)
    tried = []
    open_outside = stage._open
    stage.observer._open_outside = lambda: (tried.append(stage.now_s), open_outside())[1]
    for _ in range(10_000):
        stage.observe()
    assert len(tried) <= 10
    assert len(stage.sources()) == 1


def test_a_clock_that_is_set_is_named_and_changes_nothing() -> None:
    stage = Set()
    stage.observe()
    stage.server.change = lambda seen: replace(seen, wall_s=seen.wall_s - 3600)
    for _ in range(5):
        assert stage.observe().source == "bpf+server"
    assert stage.sources()[1:] == ["the clock was set by -3600 s: only the monotonic one counts"]


def test_an_absurd_interval_is_thrown_away() -> None:
    stage = Set()
    stage.observe()
    for interval_s in (0.0, -1.0, 40.0):
        stage.server.change = lambda seen, of=interval_s: replace(seen, interval_s=of)  # type: ignore[misc]
        assert stage.observer.observe() is None
    stage.server.change = lambda seen: seen
    stage.observe()
    assert stage.sources()[1:] == ["nothing was seen for 40.0 s: that interval is left out"]


def test_it_lets_go_of_the_monitor() -> None:
    stage = Set()
    stage.observe()
    stage.observer.close()
    stage.observer.close()
    assert stage.wires[0].is_closed


def test_nobody_waits_for_the_monitor_and_one_that_comes_late_is_closed() -> None:
    may_open = threading.Event()
    stage = Set()

    def open_slowly() -> Wire:
        assert may_open.wait(20)
        return stage._open()

    stage.observer = Observer(stage.server, open_slowly, stage.events)
    for _ in range(3):
        seen = stage.observer.observe()
        assert seen is not None and seen.source == "server"
    assert not stage.sources()
    may_open.set()
    stage.observer.close()
    assert stage.wires[0].is_closed
