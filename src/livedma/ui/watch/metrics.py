# SPDX-License-Identifier: BSD-2-Clause
"""Counts what a watch sees: views are added up, and written for Prometheus when a client asks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from livedma.control.diagnose.nfsd import KernelLimit
from livedma.monitor.snapshot import Connection, Session, Times
from livedma.ui.metrics.ledger import Ledger, Seen, Tally
from livedma.ui.metrics.now import OTHER
from livedma.ui.watch.families import (
    BY_NAME,
    CONNECTION_COUNTERS,
    CONNECTION_GAUGES,
    KERNEL_COUNTERS,
    KERNEL_HOST,
    KERNEL_TIMES,
    LATENCY,
    SESSION_COUNTERS,
    SESSION_GAUGES,
)
from livedma.ui.watch.views import View

__all__ = ["WatchMetrics"]

K = TypeVar("K", int, str)
T = TypeVar("T", Connection, Session)

_CONNECTIONS = 100  # with series of their own
_NS = 1e9
_QUANTILES = {"0.5": "p50_ns", "0.99": "p99_ns"}
_NO_TIMES = Times()


class WatchMetrics(Collector):
    """Takes views in one thread; any number of threads may ask. sessions: how many have series of
    their own; all others share one.
    """

    def __init__(self, sessions: int) -> None:
        self._lock = threading.Lock()
        self._connections: _Kept[int, Connection] = _Kept(
            (*CONNECTION_COUNTERS, *KERNEL_COUNTERS),
            (*LATENCY, *KERNEL_TIMES),
            _CONNECTIONS,
            lambda one: one.number,
        )
        self._sessions: _Kept[str, Session] = _Kept(
            tuple(SESSION_COUNTERS), tuple(LATENCY), sessions, lambda one: one.id
        )
        self._view: View | None = None
        self._began_s = time.time()

    def add(self, view: View) -> None:
        with self._lock:
            self._view = view
            self._connections.add(view.snapshot.connections)
            self._sessions.add(view.snapshot.sessions)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Returns the body and its type for a client that accepts this: OpenMetrics if it is named,
        else Prometheus' text format.
        """
        kinds = {one.partition(";")[0].strip().lower() for one in accept.split(",")}
        is_open = "application/openmetrics-text" in kinds
        kind = openmetrics.CONTENT_TYPE_LATEST if is_open else exposition.CONTENT_TYPE_PLAIN_0_0_4
        write = openmetrics.generate_latest if is_open else exposition.generate_latest
        return write(self), kind

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            return iter(list(self._collect()))

    def _collect(self) -> Iterator[Metric]:
        yield _family("start_time_seconds", [((), self._began_s)])
        view = self._view
        if view is None:
            return
        snapshot = view.snapshot
        yield _family("source", [((view.source, view.where), 1)])
        age_s = max(time.monotonic() - snapshot.at_s, 0.0)
        yield _family("snapshot_age_seconds", [((), age_s)])
        over = Counter({"rdma": 0, "tcp": 0})
        over.update(one.transport for one in snapshot.connections)
        yield _family("connections", [((kind,), count) for kind, count in over.items()])
        yield _family("sessions", [((), len(snapshot.sessions))])
        yield _family("unseen", [((), len(view.unseen))])
        lost = asdict(snapshot.losses)
        yield _family("lost", [((what,), count) for what, count in lost.items()])
        connections = self._connections
        for place, (name, _) in enumerate(CONNECTION_COUNTERS.values()):
            yield _family(name, [((), connections.seen.total[place])])
        yield _family("connection", map(_ends, connections.own))
        yield from connections.counters("connection", CONNECTION_COUNTERS)
        yield from connections.gauges("connection", CONNECTION_GAUGES)
        yield from connections.times("connection", LATENCY)
        if snapshot.host.kernel is not None:
            yield from self._inside(view)
        yield from self._sessions.counters("session", SESSION_COUNTERS)
        yield from self._sessions.gauges("session", SESSION_GAUGES)
        yield from self._sessions.times("session", LATENCY)

    def _inside(self, view: View) -> Iterator[Metric]:
        """Yields what only a source inside of the kernel's server knows."""
        connections = self._connections
        yield from connections.counters("connection", KERNEL_COUNTERS)
        yield from connections.times("connection", KERNEL_TIMES)
        named = [one for one in view.limits if one.connection in connections.seen.own]
        yield _family(
            "connection_limit",
            [
                ((str(one.connection), limit.name.lower()), limit is one.limit)
                for one in named
                for limit in KernelLimit
            ],
        )
        for field, (name, _) in KERNEL_HOST.items():
            yield _family(name, [((), getattr(view.snapshot.host.kernel, field))])


class _Kept(Generic[K, T]):
    """Adds up things of one kind, by their keys. counters, times: names of their fields."""

    def __init__(
        self, counters: Sequence[str], times: Sequence[str], most: int, key: Callable[[T], K]
    ) -> None:
        self._counters, self._times = counters, times
        self._key: Callable[[T], K] = key
        self._none: Tally = (0,) * (len(counters) + 2 * len(times))
        self._ledger: Ledger[K] = Ledger(len(self._none), most)
        self._tallies: dict[K, Tally] = {}
        self._last: dict[K, T] = {}
        self.seen: Seen[K] = self._ledger.see({})

    def add(self, found: Iterable[T]) -> None:
        self._last = {self._key(one): one for one in found}
        for key in [one for one in self._tallies if one not in self._last]:
            self._ledger.end(key, self._tallies.pop(key))
        for key, one in self._last.items():
            tally = self._tallies.get(key, self._none)
            self._tallies[key] = tuple(map(int.__add__, tally, self._new(one)))
        self.seen = self._ledger.see(self._tallies)

    def _new(self, one: T) -> Iterator[int]:
        for name in self._counters:
            yield _part(one, name, 0)
        for name in self._times:
            times = _part(one, name, _NO_TIMES)
            yield from (times.count, times.sum_ns)

    @property
    def own(self) -> list[T]:
        """Returns those with series of their own."""
        return [self._last[key] for key in self.seen.own]

    def _rows(self) -> Iterator[tuple[str, Tally, T | None]]:
        for key, tally in self.seen.own.items():
            yield str(key), tally, self._last[key]
        yield OTHER, self.seen.other, None

    def counters(self, what: str, named: Mapping[str, tuple[str, str]]) -> Iterator[Metric]:
        for field, (name, _) in named.items():
            place = self._counters.index(field)
            values = [((key,), tally[place]) for key, tally, _ in self._rows()]
            yield _family(f"{what}_{name}", values)

    def gauges(self, what: str, named: Mapping[str, tuple[str, str]]) -> Iterator[Metric]:
        for field, (name, _) in named.items():
            sums: Counter[str] = Counter({OTHER: 0})
            for key, one in self._last.items():
                sums[str(key) if key in self.seen.own else OTHER] += getattr(one, field)
            yield _family(f"{what}_{name}", [((key,), count) for key, count in sums.items()])

    def times(self, what: str, named: Mapping[str, tuple[str, str]]) -> Iterator[Metric]:
        for field, (name, _) in named.items():
            metric = _family(f"{what}_{name}", ())
            place = len(self._counters) + 2 * self._times.index(field)
            for key, tally, one in self._rows():
                last = _NO_TIMES if one is None else _part(one, field, _NO_TIMES)
                metric.samples += _summary(metric.name, {what: key}, tally[place:], last)
            yield metric


def _part(one: Connection | Session, name: str, none: Any) -> Any:
    """Returns a field of it, or of what the kernel's server knows of it."""
    if hasattr(one, name):
        return getattr(one, name)
    return getattr(getattr(one, "kernel", None), name, none)


def _summary(name: str, labels: dict[str, str], tally: Tally, last: Times) -> Iterator[Sample]:
    """Yields the samples of a summary. tally: begins with how many there were, and their sum."""
    for quantile, field in _QUANTILES.items():
        if last.count:
            yield Sample(name, {**labels, "quantile": quantile}, getattr(last, field) / _NS)
    yield Sample(name + "_count", labels, tally[0])
    yield Sample(name + "_sum", labels, tally[1] / _NS)


def _family(name: str, values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """Returns a metric with pairs of label values and their value."""
    definition = BY_NAME[name]
    metric = Metric(definition.name, definition.text, definition.kind)
    metric.samples = [
        Sample(definition.full_name, dict(zip(definition.labels, labels, strict=True)), value)
        for labels, value in values
    ]
    return metric


def _ends(one: Connection) -> tuple[tuple[str, ...], float]:
    learnt = "its start" if one.learnt_s is None else f"{one.learnt_s:.3f}"
    return (str(one.number), one.client_end, one.server, one.transport, learnt), 1
