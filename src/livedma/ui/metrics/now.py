# SPDX-License-Identifier: BSD-2-Clause
"""Fills the gauges of connections, sessions and the host, from what the controller saw last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import get_args

from prometheus_client.metrics_core import Metric

from livedma.control.act.controller import View
from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.monitor.snapshot import Connection, Session, Source
from livedma.ui.metrics.families import CONNECTION_GAUGES, SESSION_GAUGES
from livedma.ui.metrics.writing import family

__all__ = ["OTHER", "connections_now", "host_now", "sessions_now"]

OTHER = "other"


def host_now(view: View, now_s: float) -> Iterator[Metric]:
    host, diagnoses = view.snapshot.host, view.diagnoses
    yield family("livedma_snapshot_age_seconds", [((), max(now_s - view.snapshot.at_s, 0.0))])
    yield family("livedma_refuses_sessions", [((), host.refuses_sessions)])
    for name, value in (
        ("livedma_mapped_bytes", host.mapped_bytes),
        ("livedma_pinned_bytes", host.pinned_bytes),
        ("livedma_budget_bytes", host.budget_bytes),
        ("livedma_cpu_busy_ratio", host.cpu_busy),
        ("livedma_tcp_cpu_busy_ratio", host.tcp_busy),
    ):
        yield family(name, [] if value is None else [((), value)])
    source = view.snapshot.source
    yield family("livedma_monitor_source", [((one,), one == source) for one in get_args(Source)])
    limits = Counter(one.limit for one in diagnoses)
    yield family(
        "livedma_connections_limited", [((_word(limit),), limits[limit]) for limit in Limit]
    )
    degraded = sum(one.is_degraded for one in diagnoses)
    yield family("livedma_connections_degraded", [((), degraded)])


def connections_now(view: View, own: Container[int]) -> Iterator[Metric]:
    """Yields the present state of connections. own: the connections with series of their own; the
    others are summed."""
    connections = view.snapshot.connections
    yield family(
        "livedma_connection",
        [
            (
                (
                    str(one.number),
                    one.client,
                    one.server,
                    one.transport,
                    "" if one.client_port is None else str(one.client_port),
                    one.client_name,
                ),
                1,
            )
            for one in connections
            if one.number in own
        ],
    )
    for name, (suffix, _) in CONNECTION_GAUGES.items():
        sums: Counter[str] = Counter({OTHER: 0})
        for one in connections:
            value = _of_connection(one, name)
            if value is not None:
                sums[str(one.number) if one.number in own else OTHER] += value
        yield family(f"livedma_connection_{suffix}", [((key,), sum_) for key, sum_ in sums.items()])
    diagnoses = [one for one in view.diagnoses if one.connection in own]
    yield family(
        "livedma_connection_degraded",
        [((str(one.connection),), one.is_degraded) for one in diagnoses],
    )
    yield family(
        "livedma_connection_limit",
        [
            ((str(one.connection), _word(limit)), limit is one.limit)
            for one in diagnoses
            for limit in Limit
        ],
    )
    yield family("livedma_connection_room_sessions", list(_rooms(diagnoses)))


def _rooms(diagnoses: Sequence[Diagnosis]) -> Iterator[tuple[tuple[str, str, str], int]]:
    for one in diagnoses:
        room = one.room
        if room is None:
            continue
        for when, bound, value in (
            ("now", "least", room.least),
            ("now", "most", room.most),
            ("end", "least", room.end_least),
            ("end", "most", room.end_most),
        ):
            if value is not None:
                yield (str(one.connection), when, bound), value


def sessions_now(sessions: Sequence[Session], own: Container[str]) -> Iterator[Metric]:
    for name, (suffix, _) in SESSION_GAUGES.items():
        sums: Counter[str] = Counter({OTHER: 0})
        for one in sessions:
            value = one.in_flight if name == "in_flight" else getattr(one.inside, name, None)
            if value is not None:
                sums[one.id if one.id in own else OTHER] += value
        yield family(f"livedma_session_{suffix}", [((key,), sum_) for key, sum_ in sums.items()])


def _of_connection(one: Connection, name: str) -> int | None:
    """Returns None if only the server knows it, and was not asked."""
    inside = one.inside
    if name == "leased_bytes":
        return None if inside is None else inside.buffers_taken * inside.buffer_bytes
    if one.is_tcp and name not in ("in_flight", "sessions", "refuses_sessions"):
        return None
    if hasattr(one, name):
        value: int = getattr(one, name)
        return value
    return getattr(inside, name, None)


def _word(limit: Limit) -> str:
    """Returns the name for queries, which the words for people would make long."""
    return limit.name.lower()
