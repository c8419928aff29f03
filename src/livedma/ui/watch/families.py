# SPDX-License-Identifier: BSD-2-Clause
"""Lists every metric of a watch: its name, kind, labels and meaning.

They have a name of their own, livedma_watch_…: a Prometheus that scrapes a server and a watch of
the same host would otherwise count its calls twice.

python -m livedma.ui.watch.families docs/watch.md    writes their table anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from livedma.ui.metrics.families import Definition
from livedma.ui.metrics.reference import with_table

__all__ = [
    "BY_NAME",
    "CONNECTION_COUNTERS",
    "CONNECTION_GAUGES",
    "FAMILIES",
    "KERNEL_COUNTERS",
    "KERNEL_HOST",
    "KERNEL_TIMES",
    "LATENCY",
    "SESSION_COUNTERS",
    "SESSION_GAUGES",
]

# By their names in a snapshot: what comes after the prefix, and its meaning.
SESSION_COUNTERS = {
    "operations": ("operations", "Calls that were answered."),
    "read_bytes": ("read_bytes", "Bytes of files that were read."),
    "written_bytes": ("written_bytes", "Bytes of files that were written."),
}
CONNECTION_COUNTERS = {
    **SESSION_COUNTERS,
    "retransmissions": ("retransmissions", "Requests that were sent again, either way."),
    "naks": ("naks", "NAKs other than RNR NAKs: lost packets, bad requests."),
    "rnr_naks": ("rnr_naks", "RNR NAKs: no Receive was there."),
    "unanswered": ("unanswered_calls", "Calls that were given up without an answer."),
}
SESSION_GAUGES = {"in_flight": ("in_flight", "Calls under way.")}
CONNECTION_GAUGES = {
    **SESSION_GAUGES,
    "credits_granted": ("credits_granted", "Credits that the client was told."),
    "sessions": ("sessions", "Sessions that use it."),
}
LATENCY = {
    "latency": (
        "latency_seconds",
        "From a call to its reply, where it is watched; quantiles of the last interval.",
    )
}
# What only a source inside of the kernel's server has: of a connection, and of the host.
KERNEL_COUNTERS = {
    "last_credits": ("last_credits", "Calls that took the last credit when they arrived."),
    "contexts_made": ("contexts_made", "Contexts made for RDMA READs and WRITEs: none was free."),
    "receives_failed": ("receives_failed", "Receives that could not be posted."),
}
KERNEL_TIMES = {
    "thread_waits": ("thread_wait_seconds", "How long calls waited for a thread of nfsd."),
    "storage": ("storage_seconds", "Reads, writes and commits in the file system."),
    "fetches": ("fetch_seconds", "RDMA READs of what the client writes."),
    "send_waits": ("send_wait_seconds", "How long threads waited for room in the send queue."),
}
KERNEL_HOST = {
    "threads": ("nfsd_threads", "Threads of nfsd; 0: it had no call yet."),
    "serving": ("nfsd_threads_busy", "Threads that worked on calls, on average."),
    "cpus_used": ("nfsd_cpus_used", "CPUs that nfsd's threads used, on average."),
    "cpus": ("cpus", "CPUs of the host."),
    "cpus_busy": ("cpu_busy_ratio", "How busy they were, by whatever ran: 0 to 1."),
}
_PREFIX = "livedma_watch_"


def _group(
    kind: str, prefix: str, named: Mapping[str, tuple[str, str]], *labels: str
) -> Iterable[Definition]:
    for name, text in named.values():
        yield Definition(f"{_PREFIX}{prefix}{name}", kind, text, labels)  # type: ignore[arg-type]


FAMILIES: tuple[Definition, ...] = (
    Definition(_PREFIX + "source", "info", "What is watched, and where.", ("source", "where")),
    Definition(_PREFIX + "start_time_seconds", "gauge", "When it began, since the epoch."),
    Definition(_PREFIX + "snapshot_age_seconds", "gauge", "How old the last snapshot is."),
    Definition(_PREFIX + "connections", "gauge", "Connections that are seen.", ("transport",)),
    Definition(_PREFIX + "sessions", "gauge", "Sessions that are seen."),
    Definition(
        _PREFIX + "unseen", "gauge", "Sentences about what cannot be seen; 0: all can be seen."
    ),
    Definition(_PREFIX + "lost", "counter", "What could not be seen or kept.", ("what",)),
    *_group("counter", "", CONNECTION_COUNTERS),
    Definition(
        _PREFIX + "connection",
        "info",
        "The ends of a connection; learnt: seconds since the epoch, or its start.",
        ("connection", "client", "server", "transport", "learnt"),
    ),
    *_group("counter", "connection_", CONNECTION_COUNTERS, "connection"),
    *_group("gauge", "connection_", CONNECTION_GAUGES, "connection"),
    *_group("summary", "connection_", LATENCY, "connection"),
    *_group("counter", "connection_", KERNEL_COUNTERS, "connection"),
    *_group("summary", "connection_", KERNEL_TIMES, "connection"),
    Definition(
        _PREFIX + "connection_limit",
        "gauge",
        "1 for what limits it, 0 for all else (docs/inside-nfsd.md); of 8 calls or more.",
        ("connection", "limit"),
    ),
    *_group("gauge", "", KERNEL_HOST),
    *_group("counter", "session_", SESSION_COUNTERS, "session"),
    *_group("gauge", "session_", SESSION_GAUGES, "session"),
    *_group("summary", "session_", LATENCY, "session"),
)
BY_NAME = {one.name.removeprefix(_PREFIX): one for one in FAMILIES}


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text(), FAMILIES))
