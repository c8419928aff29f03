# SPDX-License-Identifier: BSD-2-Clause
"""Writes a watch as lines for pipes and files: each begins with its time, and stands alone."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.monitor.snapshot import Connection, Session, Snapshot
from livedma.ui.top.glyphs import ASCII, printable
from livedma.ui.top.heading import clock
from livedma.ui.top.picture import figure
from livedma.ui.watch.table import waiting_for
from livedma.ui.watch.views import View, words_of_threads, words_of_waits

__all__ = ["Lines"]

_MB = 1e6
_TITLES = ("time", "what", "op/s", "MB/s read", "written", "p50", "p99", "in flight")
_WIDTHS = (8, 40, 9, 9, 9, 8, 8, 9)


class Lines:
    """Writes one view after the other. What has not changed since it was told is not told again."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    @property
    def header(self) -> str:
        return _line(_TITLES, ())

    def of(self, view: View) -> Iterator[str]:
        """Yields the lines of a view. Connections and sessions that did nothing have none."""
        snapshot = view.snapshot
        at = clock(snapshot.wall_s)
        unseen = {printable(sentence, ASCII): "" for sentence in view.unseen}
        told = {f"not seen: {sentence}": "" for sentence in unseen}
        if not view.connections:
            told[waiting_for(view)] = ""
        told |= {f"connection {one.number}": _about(one) for one in view.connections}
        for what, words in told.items():
            if self._told.get(what) != words:
                yield f"{at} {what}{': ' if words else ''}{words}"
        self._told = told
        if (threads := words_of_threads(snapshot)) and any(
            one.operations for one in view.connections
        ):
            yield f"{at} {threads}"
        for connection in view.connections:
            if connection.operations or connection.in_flight:
                yield _row(at, f"connection {connection.number}", snapshot, connection)
            yield from (f"{at} {one}" for one in _trouble(view, connection))
        for session in snapshot.sessions:
            if session.operations or session.in_flight:
                numbers = ",".join(map(str, session.connections))
                yield _row(at, f"{session.id} on {numbers}", snapshot, session)


def _about(one: Connection) -> str:
    since = f"since {clock(one.learnt_s)}" if one.learnt_s else "from its start"
    pair = f" qp {one.server_qpn}" if one.server_qpn else ""
    ends = f"{one.client_words} to {one.server}{pair}"
    return printable(f"{ends} over {one.transport}, {since}", ASCII)


def _trouble(view: View, one: Connection) -> Iterator[str]:
    counted = (
        ("packets sent again", one.retransmissions),
        ("NAKs", one.naks),
        ("RNR NAKs", one.rnr_naks),
        ("calls without a reply", one.unanswered),
        ("calls that took the last credit", one.kernel.last_credits if one.kernel else 0),
    )
    found = [f"{what} {count:,}" for what, count in counted if count]
    if trouble := view.trouble(one.number):
        found.append(trouble)
    if waits := words_of_waits(one):
        found.append(waits)
    yield from (f"connection {one.number}: {printable(words, ASCII)}" for words in found)


def _row(at: str, what: str, snapshot: Snapshot, one: Connection | Session) -> str:
    times = one.latency
    cells = (
        f"{snapshot.per_s(one.operations):,.0f}",
        f"{snapshot.per_s(one.read_bytes) / _MB:,.1f}",
        f"{snapshot.per_s(one.written_bytes) / _MB:,.1f}",
        *(
            figure(ns if times.count else None, "time", ASCII)
            for ns in (times.p50_ns, times.p99_ns)
        ),
        f"{one.in_flight:,}",
    )
    return _line((at, what), cells)


def _line(left: tuple[str, ...], right: tuple[str, ...]) -> str:
    cells = (*left, *right)
    shown = [
        text.ljust(width) if place < 2 else text.rjust(width)
        for place, (text, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
    return " ".join(shown).rstrip()
