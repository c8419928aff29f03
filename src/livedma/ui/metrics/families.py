# SPDX-License-Identifier: BSD-2-Clause
"""Lists every metric: its name, kind, labels and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "BY_NAME",
    "CONNECTION_COUNTERS",
    "CONNECTION_GAUGES",
    "CONNECTION_TIMES",
    "FAMILIES",
    "SESSION_COUNTERS",
    "SESSION_GAUGES",
    "Definition",
]

Kind = Literal["counter", "gauge", "histogram", "info", "summary"]
_SUFFIX = {"counter": "_total", "gauge": "", "histogram": "", "info": "_info", "summary": ""}


@dataclass(frozen=True, slots=True)
class Definition:
    """Defines one metric. name: without the suffix of its kind."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Returns the name for queries; a histogram's also has _bucket, _count and _sum, a
        summary's the last two.
        """
        return self.name + _SUFFIX[self.kind]


# By the names in `counted`: what comes after the prefix, and its meaning.
CONNECTION_COUNTERS = {
    "operations": ("operations", "Calls that were answered."),
    "read_bytes": ("read_bytes", "Bytes of files that were read."),
    "written_bytes": ("written_bytes", "Bytes of files that were written."),
    "receives_late": ("receives_late", "Calls that found fewer Receives than credits."),
    "unanswered": ("unanswered_calls", "Calls that were given up without an answer."),
    "rnr_naks": ("rnr_naks", "RNR NAKs, sent and received: no Receive was there."),
    "naks": ("naks", "Other NAKs, and what led to them: lost packets, bad requests."),
    "retransmissions": ("retransmissions", "Requests that were sent again, either way."),
}
CONNECTION_TIMES = {
    "latency": ("latency_seconds", "From a call's arrival until its reply was posted."),
    "memory_waits": ("memory_wait_seconds", "How long calls waited for a DMA buffer."),
    "send_waits": ("send_wait_seconds", "How long they waited for room in the send queue."),
    "storage": ("storage_seconds", "Accesses to the store, as long as a buffer was held for it."),
    "storage_queue": ("storage_queue_seconds", "Of that: until the store began with it."),
}
# By the names in `monitor.snapshot.Inside`, or in its Connection.
CONNECTION_GAUGES = {
    "window_bytes": ("window_bytes", "DMA addresses of its window: what it may grow to."),
    "mapped_bytes": ("mapped_bytes", "Of these: what has memory."),
    "pinned_bytes": ("pinned_bytes", "Of these: what the kernel may not move or page out."),
    "first_bytes": ("first_bytes", "What had memory when the connection was made."),
    "room_bytes": ("room_bytes", "What can still be mapped for data, in whole shards."),
    "leased_bytes": ("leased_bytes", "Data buffers that calls hold."),
    "buffers": ("buffers", "Data buffers there are."),
    "buffers_taken": ("buffers_taken", "Data buffers that calls hold."),
    "buffers_wanted": ("buffers_wanted", "Data buffers that calls wait for."),
    "credits": ("credits", "Credits it should have: calls that may be under way."),
    "credits_granted": ("credits_granted", "Credits that its client was told."),
    "credits_asked": ("credits_asked", "Credits that its client asked for."),
    "credits_max": ("credits_max", "What credits may be raised to."),
    "receives_posted": ("receives_posted", "Receives that wait for a call."),
    "in_flight": ("in_flight", "Calls that are being worked on."),
    "sessions": ("sessions", "Sessions that are bound to it."),
    "refuses_sessions": ("refuses_sessions", "1: new sessions that come by it are refused."),
}
SESSION_COUNTERS = {
    "operations": ("operations", "Requests that were executed."),
    "read_bytes": ("read_bytes", "Bytes of files that were read."),
    "written_bytes": ("written_bytes", "Bytes of files that were written."),
    "memory_waited_ns": ("memory_wait_seconds", "How long its requests waited for DMA buffers."),
    "storage_ns": ("storage_seconds", "How long its requests were in the store."),
}
SESSION_GAUGES = {
    "slots": ("slots", "Requests that may be under way."),
    "in_flight": ("in_flight", "Requests that are being executed."),
}


def _group(
    prefix: str, kind: Kind, named: Mapping[str, tuple[str, str]], *labels: str, of: str = ""
) -> Iterable[Definition]:
    for name, text in named.values():
        yield Definition(prefix + name, kind, text + of, labels)


_OF_ALL = " Of all connections, those that have ended included."
_OF_SESSIONS = " Of all sessions, over RDMA or TCP, those that have ended included."
FAMILIES: tuple[Definition, ...] = (
    Definition("livedma_build", "info", "What is running.", ("version", "commit")),
    Definition("livedma_start_time_seconds", "gauge", "When it began, since the epoch."),
    *_group("livedma_", "counter", CONNECTION_COUNTERS, of=_OF_ALL),
    *_group("livedma_", "histogram", CONNECTION_TIMES, of=_OF_ALL),
    *_group("livedma_sessions_", "counter", SESSION_COUNTERS, of=_OF_SESSIONS),
    Definition("livedma_connections", "gauge", "Connections that are open.", ("transport",)),
    Definition(
        "livedma_connections_refused",
        "counter",
        "Connections over RDMA that were refused: no memory, no place, or not allowed.",
    ),
    Definition("livedma_sessions", "gauge", "Sessions that there are."),
    Definition(
        "livedma_refuses_sessions", "gauge", "1: everybody's new sessions are refused for now."
    ),
    Definition("livedma_mapped_bytes", "gauge", "DMA memory of all connections."),
    Definition("livedma_pinned_bytes", "gauge", "Of this: what is pinned."),
    Definition("livedma_budget_bytes", "gauge", "What that may be; absent without a bound."),
    Definition(
        "livedma_cpu_busy_ratio",
        "gauge",
        "Of the busiest thread that serves a device: 0 to 1, in the last tenth of a second.",
    ),
    Definition(
        "livedma_tcp_cpu_busy_ratio",
        "gauge",
        "Of one CPU, by all threads that serve TCP, in the last tenth of a second: may be above 1.",
    ),
    Definition(
        "livedma_cpu_busy_seconds",
        "counter",
        "How long the thread that serves a device was busy, waiting excepted.",
        ("device",),
    ),
    Definition(
        "livedma_connections_limited",
        "gauge",
        "How many connections are limited by that (docs/diagnosis.md).",
        ("limit",),
    ),
    Definition("livedma_connections_degraded", "gauge", "How many are slower than they need be."),
    Definition("livedma_policy", "info", "What decides about memory.", ("policy", "dry_run")),
    Definition(
        "livedma_decisions",
        "counter",
        "What the controller saw, decided and did (docs/control.md).",
        ("kind",),
    ),
    Definition(
        "livedma_monitor_source",
        "gauge",
        "1 for what snapshots come from: the server alone, or BPF on the wire, too.",
        ("source",),
    ),
    Definition("livedma_monitor_bpf_wanted", "gauge", "1: BPF should be watching the wire."),
    Definition(
        "livedma_monitor_lost",
        "counter",
        "What BPF could not see or keep.",
        ("what",),
    ),
    Definition(
        "livedma_snapshot_age_seconds", "gauge", "How old is what the controller has seen last."
    ),
    Definition("livedma_native_calls", "counter", "Calls served without Python.", ("operation",)),
    Definition("livedma_native_bytes", "counter", "Bytes that these have moved.", ("operation",)),
    Definition("livedma_native_errors", "counter", "Those that failed.", ("operation",)),
    Definition(
        "livedma_native_left", "counter", "Calls that were left to Python, and why.", ("reason",)
    ),
    Definition(
        "livedma_connection",
        "info",
        "The client and the server of a connection.",
        ("connection", "client", "server", "transport", "client_port", "client_name"),
    ),
    *_group("livedma_connection_", "counter", CONNECTION_COUNTERS, "connection"),
    *_group("livedma_connection_", "histogram", CONNECTION_TIMES, "connection"),
    *_group("livedma_connection_", "gauge", CONNECTION_GAUGES, "connection"),
    Definition(
        "livedma_connection_degraded",
        "gauge",
        "1: it is slower than it needs to be.",
        ("connection",),
    ),
    Definition(
        "livedma_connection_limit",
        "gauge",
        "1 for what limits it, 0 for all else (docs/diagnosis.md).",
        ("connection", "limit"),
    ),
    Definition(
        "livedma_connection_room_sessions",
        "gauge",
        "How many more sessions like its busy ones it takes: the least and the most, with what is "
        "mapped (now) and with all its window (end); absent while that is not known.",
        ("connection", "when", "bound"),
    ),
    *_group("livedma_session_", "counter", SESSION_COUNTERS, "session"),
    Definition(
        "livedma_session_latency_seconds",
        "histogram",
        "From a request's arrival until its end.",
        ("session",),
    ),
    *_group("livedma_session_", "gauge", SESSION_GAUGES, "session"),
)
BY_NAME = {one.name: one for one in FAMILIES}
