# SPDX-License-Identifier: BSD-2-Clause
"""Lists the columns of a watch's tables: what each says, how wide it is, and which ones fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from livedma.monitor.snapshot import Connection, Session, Snapshot
from livedma.ui.top.glyphs import Glyphs, fit, printable, width_of
from livedma.ui.top.heading import clock
from livedma.ui.top.picture import figure

__all__ = ["CONNECTIONS", "Column", "Placed", "place", "session_columns"]

T = TypeVar("T", Connection, Session)

_MB = 1e6


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """Describes a column. width: None: as much as its longest text. rank: columns with a higher
    rank are left out first where there is too little room. is_known: whether the source can fill it
    at all.
    """

    title: str
    text: Callable[[Snapshot, T, Glyphs], str]
    width: int | None = None
    rank: int = 0
    is_left: bool = False
    is_known: Callable[[Snapshot], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """Holds a column with the width that it has in one picture."""

    column: Column[T]
    width: int

    def put(self, text: str, glyphs: Glyphs) -> str:
        text = fit(text, self.width, glyphs)
        pad = " " * (self.width - width_of(text))
        return text + pad if self.column.is_left else pad + text


def place(
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    snapshot: Snapshot,
    width: int | None,
    glyphs: Glyphs,
) -> list[Placed[T]]:
    """Returns the columns that fit into a width, with a space before each. None: there is room for
    all.
    """
    known = [one for one in columns if one.is_known(snapshot)]
    widths = {one.title: _width(one, rows, snapshot, glyphs) for one in known}
    for rank in sorted({one.rank for one in known}, reverse=True):
        shown = [one for one in known if one.rank <= rank]
        if width is None or _whole(shown, widths) <= width:
            break
    else:
        _narrow(shown, widths, width or 0)
    return [Placed(one, widths[one.title]) for one in shown]


def _width(column: Column[T], rows: Sequence[T], snapshot: Snapshot, glyphs: Glyphs) -> int:
    if column.width is not None:
        return column.width
    texts: list[str] = [column.text(snapshot, one, glyphs) for one in rows]
    gap = 1 if column.is_left else 0  # two texts side by side are hard to tell apart
    return max(map(width_of, (column.title, *texts))) + gap


def _whole(columns: Sequence[Column[T]], widths: Mapping[str, int]) -> int:
    return sum(1 + widths[one.title] for one in columns)


def _narrow(columns: Sequence[Column[T]], widths: dict[str, int], width: int) -> None:
    """Takes what is missing from the longest of the columns that are as wide as their texts."""
    elastic = [one.title for one in columns if one.width is None]
    while elastic and _whole(columns, widths) > width:
        longest = max(elastic, key=lambda one: widths[one])
        if widths[longest] <= len(longest) + 1:
            return  # the terminal is narrower than any that is meant
        widths[longest] -= 1


def _megabytes(snapshot: Snapshot, count: int) -> str:
    return f"{snapshot.per_s(count) / _MB:,.1f}" if count else "0"


def _time(one: Connection | Session, ns: int, glyphs: Glyphs) -> str:
    return figure(ns if one.latency.count else None, "time", glyphs)


def _has_inside(snapshot: Snapshot) -> bool:
    return any(one.inside is not None for one in snapshot.sessions)


def _client(snapshot: Snapshot, session: Session, glyphs: Glyphs) -> str:
    return _ends(snapshot, session, lambda one: one.client_words, glyphs)


def _server(snapshot: Snapshot, session: Session, glyphs: Glyphs) -> str:
    return _ends(snapshot, session, lambda one: one.server, glyphs)


def _ends(
    snapshot: Snapshot, session: Session, end: Callable[[Connection], str], glyphs: Glyphs
) -> str:
    found = map(snapshot.connection, session.connections)
    return printable(", ".join(dict.fromkeys(end(one) for one in found if one)), glyphs)


def _since(snapshot: Snapshot, session: Session, glyphs: Glyphs) -> str:
    found = [one for one in map(snapshot.connection, session.connections) if one]
    return _first_seen(min((one.learnt_s or 0.0 for one in found), default=0.0))


def _first_seen(learnt_s: float | None) -> str:
    return clock(learnt_s) if learnt_s else "its start"


def _slots(_: Snapshot, session: Session, glyphs: Glyphs) -> str:
    inside = session.inside
    return glyphs.unknown if inside is None else f"{inside.slots_used_most}/{inside.slots}"


def _credits(_: Snapshot, one: Connection, glyphs: Glyphs) -> str:
    if one.is_tcp or not one.credits_granted:
        return glyphs.unknown
    return f"{min(one.in_flight, one.credits_granted)}/{one.credits_granted}"


def _last_credits(_: Snapshot, one: Connection, glyphs: Glyphs) -> str:
    return glyphs.unknown if one.is_tcp or one.kernel is None else f"{one.kernel.last_credits:,}"


def _is_inside_kernel(snapshot: Snapshot) -> bool:
    return snapshot.source == "nfsd"


def _sees_wire(snapshot: Snapshot) -> bool:
    return not _is_inside_kernel(snapshot)


def session_columns(ids: Collection[str]) -> tuple[Column[Session], ...]:
    """Returns the columns of a table of all these sessions."""
    digits = _digits(ids)
    first: Column[Session] = Column(
        "session", lambda _, one, glyphs: printable(one.id[:digits], glyphs), is_left=True
    )
    return first, *_OF_SESSIONS


def _digits(ids: Collection[str]) -> int:
    """Returns how many digits tell all ids apart. Those of the kernel's server begin alike: with
    the time of its start, then its client's number.
    """
    return next((n for n in (8, 16) if len({one[:n] for one in ids}) == len(ids)), 32)


_OF_SESSIONS: tuple[Column[Session], ...] = (
    Column("conn", lambda _, one, glyphs: ",".join(map(str, one.connections)) or glyphs.unknown, 4),
    Column("op/s", lambda s, one, _: f"{s.per_s(one.operations):,.0f}", 7),
    Column("MB/s read", lambda s, one, _: _megabytes(s, one.read_bytes), 9),
    Column("written", lambda s, one, _: _megabytes(s, one.written_bytes), 9),
    Column("p50", lambda _, one, glyphs: _time(one, one.latency.p50_ns, glyphs), 8),
    Column("p99", lambda _, one, glyphs: _time(one, one.latency.p99_ns, glyphs), 8),
    Column("longest", lambda _, one, glyphs: _time(one, one.latency.max_ns, glyphs), 8, rank=2),
    Column("in flight", lambda _, one, __: f"{one.in_flight:,}", 9),
    Column(
        "waits",
        lambda _, one, glyphs: figure(one.memory_wait_ns, "time", glyphs),
        8,
        rank=1,
        is_known=_has_inside,
    ),
    Column(
        "store",
        lambda _, one, glyphs: figure(one.storage_ns, "time", glyphs),
        8,
        rank=1,
        is_known=_has_inside,
    ),
    Column("slots", _slots, 7, rank=1, is_known=_has_inside),
    Column("client", _client, rank=3, is_left=True),
    Column("server", _server, rank=3, is_left=True),
    Column("seen since", _since, 10, rank=3, is_left=True),
)

CONNECTIONS: tuple[Column[Connection], ...] = (
    Column("conn", lambda _, one, __: str(one.number), 4),
    Column("client", lambda _, one, glyphs: printable(one.client_end, glyphs), is_left=True),
    Column("server", lambda _, one, glyphs: printable(one.server, glyphs), is_left=True),
    Column("over", lambda _, one, __: one.transport, 4, is_left=True, rank=1),
    Column("seen since", lambda _, one, __: _first_seen(one.learnt_s), 10, is_left=True),
    Column("sessions", lambda _, one, __: f"{one.sessions:,}", 8, rank=1),
    Column("op/s", lambda s, one, _: f"{s.per_s(one.operations):,.0f}", 7),
    Column("MB/s read", lambda s, one, _: _megabytes(s, one.read_bytes), 9, rank=2),
    Column("written", lambda s, one, _: _megabytes(s, one.written_bytes), 9, rank=2),
    Column("p50", lambda _, one, glyphs: _time(one, one.latency.p50_ns, glyphs), 8, rank=2),
    Column("p99", lambda _, one, glyphs: _time(one, one.latency.p99_ns, glyphs), 8, rank=1),
    Column("credits", _credits, 9),
    Column("last credit", _last_credits, 11, is_known=_is_inside_kernel),
    Column("resent", lambda _, one, __: f"{one.retransmissions:,}", 6, is_known=_sees_wire),
    Column("NAKs", lambda _, one, __: f"{one.naks + one.rnr_naks:,}", 5, is_known=_sees_wire),
    Column("no reply", lambda _, one, __: f"{one.unanswered:,}", 8, rank=1, is_known=_sees_wire),
)
