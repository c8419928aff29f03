# SPDX-License-Identifier: BSD-2-Clause
"""Counts what a watch sees: views are added up, and written for Prometheus when a client asks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Generic, TypeVar

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from livedma.monitor.snapshot import Connection, Session
from livedma.ui.metrics.ledger import Ledger, Seen, Tally
from livedma.ui.metrics.now import OTHER
from livedma.ui.watch.families import (
    BY_NAME,
    CONNECTION_COUNTERS,
    CONNECTION_GAUGES,
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
_TIMES = 2  # of a tally's last places: how many calls, and the sum of their times


class WatchMetrics(Collector):
    """Takes views in one thread; any number of threads may ask. sessions: how many have series of
    their own; all others share one.
    """

    def __init__(self, sessions: int) -> None:
        self._lock = threading.Lock()
        self._connections: _Kept[int, Connection] = _Kept(
            tuple(CONNECTION_COUNTERS), _CONNECTIONS, lambda one: one.number
        )
        self._sessions: _Kept[str, Session] = _Kept(
            tuple(SESSION_COUNTERS), sessions, lambda one: one.id
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
        connections = self._connections.seen
        for place, (name, _) in enumerate(CONNECTION_COUNTERS.values()):
            yield _family(name, [((), connections.total[place])])
        yield _family("connection", map(_ends, self._connections.own))
        yield from self._connections.metrics("connection", CONNECTION_COUNTERS, CONNECTION_GAUGES)
        yield from self._sessions.metrics("session", SESSION_COUNTERS, SESSION_GAUGES)


class _Kept(Generic[K, T]):
    """Adds up things of one kind, by their keys."""

    def __init__(self, names: Sequence[str], most: int, key: Callable[[T], K]) -> None:
        self._names = names
        self._key: Callable[[T], K] = key
        self._ledger: Ledger[K] = Ledger(len(names) + _TIMES, most)
        self._tallies: dict[K, Tally] = {}
        self._last: dict[K, T] = {}
        self.seen: Seen[K] = self._ledger.see({})

    def add(self, found: Iterable[T]) -> None:
        self._last = {self._key(one): one for one in found}
        for key in [one for one in self._tallies if one not in self._last]:
            self._ledger.end(key, self._tallies.pop(key))
        none: Tally = (0,) * (len(self._names) + _TIMES)
        for key, one in self._last.items():
            new = [getattr(one, name) for name in self._names]
            new += [one.latency.count, one.latency.sum_ns]
            tally = self._tallies.get(key, none)
            self._tallies[key] = tuple(map(int.__add__, tally, new))
        self.seen = self._ledger.see(self._tallies)

    @property
    def own(self) -> list[T]:
        """Returns those with series of their own."""
        return [self._last[key] for key in self.seen.own]

    def metrics(
        self,
        what: str,
        counters: Mapping[str, tuple[str, str]],
        gauges: Mapping[str, tuple[str, str]],
    ) -> Iterator[Metric]:
        rows = [*((str(key), tally) for key, tally in self.seen.own.items())]
        rows.append((OTHER, self.seen.other))
        for place, (name, _) in enumerate(counters.values()):
            yield _family(f"{what}_{name}", [((key,), tally[place]) for key, tally in rows])
        for field, (name, _) in gauges.items():
            sums: Counter[str] = Counter({OTHER: 0})
            for key, one in self._last.items():
                sums[str(key) if key in self.seen.own else OTHER] += getattr(one, field)
            yield _family(f"{what}_{name}", [((key,), count) for key, count in sums.items()])
        yield self._latency(f"{what}_latency_seconds", what, rows)

    def _latency(self, name: str, label: str, rows: Sequence[tuple[str, Tally]]) -> Metric:
        metric = _family(name, ())
        add = metric.samples.append
        own = {str(key): self._last[key] for key in self.seen.own}
        for key, tally in rows:
            one = own.get(key)
            for quantile, field in _QUANTILES.items():
                if one is not None and one.latency.count:
                    value = getattr(one.latency, field) / _NS
                    add(Sample(metric.name, {label: key, "quantile": quantile}, value))
            add(Sample(metric.name + "_count", {label: key}, tally[-2]))
            add(Sample(metric.name + "_sum", {label: key}, tally[-1] / _NS))
        return metric


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
