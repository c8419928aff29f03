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
_PREFIX = "livedma_watch_"
_LATENCY = "From a call to its reply, where it is watched; quantiles of the last interval."


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
    Definition(_PREFIX + "connection_latency_seconds", "summary", _LATENCY, ("connection",)),
    *_group("counter", "session_", SESSION_COUNTERS, "session"),
    *_group("gauge", "session_", SESSION_GAUGES, "session"),
    Definition(_PREFIX + "session_latency_seconds", "summary", _LATENCY, ("session",)),
)
BY_NAME = {one.name.removeprefix(_PREFIX): one for one in FAMILIES}


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text(), FAMILIES))
