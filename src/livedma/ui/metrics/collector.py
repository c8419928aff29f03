# SPDX-License-Identifier: BSD-2-Clause
"""Reads a server's metrics when a client asks, and writes them in the form that it accepts."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.resources
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Self

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from livedma._native.accelerator import KINDS
from livedma.control.act.controller import Controller
from livedma.monitor.snapshot import Losses
from livedma.nfs.server.service import NfsService
from livedma.ui.metrics.counted import CONNECTION, SESSION, Books, Counted
from livedma.ui.metrics.families import CONNECTION_COUNTERS, CONNECTION_TIMES, SESSION_COUNTERS
from livedma.ui.metrics.now import OTHER, connections_now, host_now, sessions_now
from livedma.ui.metrics.writing import Rows, counters, family, histogram

__all__ = ["SESSIONS", "Metrics"]

SESSIONS = 100  # with series of their own
FRESH_S = 0.5
_LEFT = "left_"


class Metrics(Collector):
    """Collects the metrics of a server and its controller, from now on until `close`. A context
    manager.

    sessions: how many have series of their own; all others share one. wants_bpf: BPF should be
    watching. Any number of threads may ask at a time, and no call waits for any of them. A client
    that asks within fresh_s of another one gets the same answer: asking often costs little.
    """

    def __init__(
        self,
        service: NfsService,
        controller: Controller,
        *,
        sessions: int = SESSIONS,
        wants_bpf: bool = False,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._service = service
        self._controller = controller
        self._wants_bpf = wants_bpf
        self._counted = Counted(service, sessions)
        self._losses = _Losses()
        self._fresh_s = fresh_s
        self._writing = threading.Lock()
        self._written: dict[str, tuple[float, bytes]] = {}
        self._process = ProcessCollector(registry=None)
        self._build = (
            importlib.metadata.version("livedma"),
            importlib.resources.files("livedma").joinpath("commit").read_text().strip(),
        )

    def render(self, accept: str) -> tuple[bytes, str]:
        """Returns the body and its type for a client that accepts this: OpenMetrics if it is named,
        else Prometheus' text format.
        """
        kinds = {one.partition(";")[0].strip().lower() for one in accept.split(",")}
        is_open = "application/openmetrics-text" in kinds
        kind = openmetrics.CONTENT_TYPE_LATEST if is_open else exposition.CONTENT_TYPE_PLAIN_0_0_4
        with self._writing:
            at_s, body = self._written.get(kind, (-math.inf, b""))
            now_s = time.monotonic()
            if now_s - at_s >= self._fresh_s:
                write = openmetrics.generate_latest if is_open else exposition.generate_latest
                body = write(self)
                self._written[kind] = now_s, body
        return body, kind

    def collect(self) -> Iterator[Metric]:
        books = self._counted.look()
        yield from self._server()
        yield from _connections("livedma_", [({}, books.connections.total)])
        yield from self._steering()
        own = books.connections.own
        rows = [
            *((str(key), tally) for key, tally in own.items()),
            (OTHER, books.connections.other),
        ]
        yield from _connections(
            "livedma_connection_", [({"connection": key}, tally) for key, tally in rows]
        )
        yield from self._now(books)
        yield from _sessions(books)
        yield from self._process.collect()

    def _server(self) -> Iterator[Metric]:
        service, accelerator = self._service, self._service.accelerator
        yield family("livedma_build", [(self._build, 1)])
        yield family("livedma_start_time_seconds", [((), service.started_s)])
        rdma = sum(len(one.connections) for one in service.rdma)
        tcp = sum(len(one.connections()) for one in service.tcp)
        yield family("livedma_connections", [(("rdma",), rdma), (("tcp",), tcp)])
        refused = sum(one.refused for one in service.rdma)
        yield family("livedma_connections_refused", [((), refused)])
        yield family("livedma_sessions", [((), len(service.server.sessions))])
        yield family("livedma_cpu_busy_seconds", self._busy())
        served = {kind: accelerator.served(kind) for kind in KINDS}
        for name in ("calls", "bytes", "errors"):
            yield family(
                f"livedma_native_{name}", [((kind,), served[kind][name]) for kind in KINDS]
            )
        left = accelerator.counters
        yield family(
            "livedma_native_left",
            [((name.removeprefix(_LEFT),), left[name]) for name in left if name.startswith(_LEFT)],
        )

    def _busy(self) -> Iterator[tuple[tuple[str], float]]:
        for one in self._service.rdma:
            with contextlib.suppress(ValueError):  # the device is closed
                yield (one.device.address,), one.busy_ns / 1e9

    def _steering(self) -> Iterator[Metric]:
        controller = self._controller
        dry_run = "true" if controller.is_dry else "false"
        yield family("livedma_policy", [((controller.policy.name, dry_run), 1)])
        yield family(
            "livedma_decisions",
            [((kind,), count) for kind, count in controller.events.counts().items()],
        )
        yield family("livedma_monitor_bpf_wanted", [((), self._wants_bpf)])

    def _now(self, books: Books) -> Iterator[Metric]:
        view = self._controller.view()
        if view is None:
            return
        lost = self._losses.add(view.snapshot.at_s, view.snapshot.losses)
        yield family("livedma_monitor_lost", [((what,), count) for what, count in lost.items()])
        yield from host_now(view, time.monotonic())
        yield from connections_now(view, books.connections.own)
        yield from sessions_now(view.snapshot.sessions, {key.hex() for key in books.sessions.own})

    def close(self) -> None:
        self._counted.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connections(prefix: str, rows: Rows) -> Iterator[Metric]:
    for name, (suffix, _) in CONNECTION_COUNTERS.items():
        yield counters(prefix + suffix, CONNECTION.place(name), rows)
    for name, (suffix, _) in CONNECTION_TIMES.items():
        yield histogram(prefix + suffix, CONNECTION.place(name), rows)


def _sessions(books: Books) -> Iterator[Metric]:
    yield from _session_counters("livedma_sessions_", [({}, books.sessions.total)])
    rows: Rows = [
        *(({"session": key.hex()}, tally) for key, tally in books.sessions.own.items()),
        ({"session": OTHER}, books.sessions.other),
    ]
    yield from _session_counters("livedma_session_", rows)
    yield histogram("livedma_session_latency_seconds", SESSION.place("latency"), rows)


def _session_counters(prefix: str, rows: Rows) -> Iterator[Metric]:
    for name, (suffix, _) in SESSION_COUNTERS.items():
        place, is_ns = SESSION.place(name), name.endswith("_ns")
        yield counters(prefix + suffix, place, rows, is_ns=is_ns)


class _Losses:
    """Keeps counters growing when a source is replaced and begins again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_s = 0.0
        self._last = asdict(Losses())
        self._total = asdict(Losses())

    def add(self, at_s: float, losses: Losses) -> dict[str, int]:
        """Returns all losses so far; at_s: when they were seen."""
        with self._lock:
            if at_s > self._at_s:  # else another thread was quicker with a later one
                now = asdict(losses)
                for what, count in now.items():
                    last = self._last[what]
                    self._total[what] += count - last if count >= last else count
                self._at_s, self._last = at_s, now
            return dict(self._total)
