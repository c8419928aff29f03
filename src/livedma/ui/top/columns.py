# SPDX-License-Identifier: BSD-2-Clause
"""Lists the columns of the sessions' table: their contents, their order, and which ones fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from livedma.monitor.snapshot import Session, Snapshot
from livedma.ui.top.glyphs import Glyphs, fit, printable
from livedma.ui.top.model import Moment
from livedma.ui.top.picture import figure

__all__ = ["COLUMNS", "GRAPHS", "Column", "Graph", "Placed", "place"]

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """Describes a column. key: sorts by it. value: what sorts; None comes last. rank: columns with
    a higher rank are left out first when there is too little room."""

    name: str
    key: str
    title: str
    width: int
    value: Callable[[Snapshot, Session], Value]
    text: Callable[[Snapshot, Session, Glyphs], str]
    rank: int = 0
    is_left: bool = False
    most_first: bool = True


def _number(
    name: str,
    key: str,
    title: str,
    width: int,
    value: Callable[[Snapshot, Session], float | None],
    kind: str,
    rank: int = 0,
) -> Column:
    def text(snapshot: Snapshot, session: Session, glyphs: Glyphs) -> str:
        return figure(value(snapshot, session), kind, glyphs)

    return Column(name, key, title, width, value, text, rank)


def _p50(_: Snapshot, session: Session) -> float | None:
    return session.latency.p50_ns if session.latency.count else None


def _p99(_: Snapshot, session: Session) -> float | None:
    return session.latency.p99_ns if session.latency.count else None


def _connections(_: Snapshot, session: Session, glyphs: Glyphs) -> str:
    return ",".join(map(str, session.connections)) or glyphs.unknown


def _slots_used(_: Snapshot, session: Session) -> float | None:
    return session.inside.slots_used_most if session.inside else None


def _slots(_: Snapshot, session: Session, glyphs: Glyphs) -> str:
    inside = session.inside
    return glyphs.unknown if inside is None else f"{inside.slots_used_most}/{inside.slots}"


COLUMNS: tuple[Column, ...] = (
    Column(
        "session",
        "i",
        "session",
        8,
        lambda _, session: session.id,
        lambda _, session, glyphs: printable(session.id, glyphs),
        is_left=True,
        most_first=False,
    ),
    Column(
        "connection",
        "c",
        "conn",
        4,
        lambda _, session: float(min(session.connections, default=0)),
        _connections,
        most_first=False,
    ),
    _number("operations", "o", "op/s", 7, lambda s, one: s.per_s(one.operations), "count"),
    _number("bandwidth", "b", "bandwidth", 9, lambda s, one: s.per_s(one.bytes), "rate"),
    _number("read", "e", "read", 9, lambda s, one: s.per_s(one.read_bytes), "rate", 2),
    _number("written", "t", "written", 9, lambda s, one: s.per_s(one.written_bytes), "rate", 2),
    _number("p50", "m", "p50", 8, _p50, "time"),
    _number("p99", "p", "p99", 8, _p99, "time"),
    _number("waits", "w", "waits", 8, lambda _, one: one.memory_wait_ns, "time"),
    _number("store", "a", "store", 8, lambda _, one: one.storage_ns, "time", 1),
    _number("flight", "f", "in flight", 9, lambda _, one: one.in_flight, "count", 1),
    Column("slots", "l", "slots", 7, _slots_used, _slots),
)


@dataclass(frozen=True, slots=True)
class Graph:
    """Says what the last column draws of the last minute."""

    title: str
    kind: str
    value: Callable[[Moment], float | None]


GRAPHS: tuple[Graph, ...] = (
    Graph("bandwidth", "rate", lambda moment: moment.bytes_per_s),
    Graph("op/s", "count", lambda moment: moment.operations_per_s),
    Graph("p99", "time", lambda moment: moment.p99_ns),
    Graph("waits", "time", lambda moment: moment.wait_ns),
)


@dataclass(frozen=True, slots=True)
class Placed:
    """Places a column on the screen."""

    column: Column
    begin: int
    width: int

    def put(self, text: str, glyphs: Glyphs) -> str:
        if self.column.is_left:  # an id, whose beginning is enough
            return f"{text[: self.width]:<{self.width}}"
        return f"{fit(text, self.width, glyphs):>{self.width}}"


_GRAPH_LEAST = 9
_ID_WIDTHS = (32, 16, 8)


def place(width: int) -> tuple[Sequence[Placed], int]:
    """Returns the columns that fit into a width, and where the graph begins that takes the rest."""
    for rank in (2, 1, 0):
        columns = [one for one in COLUMNS if one.rank <= rank]
        for id_width in _ID_WIDTHS if rank else _ID_WIDTHS[-1:]:
            placed, begin = _placed(columns, id_width)
            if width - begin >= (3 * _GRAPH_LEAST if rank else _GRAPH_LEAST):
                return placed, begin
    while len(placed) > 1 and placed[-1].begin + placed[-1].width > width:
        placed.pop()  # the terminal is narrower than any that is meant
    return placed, begin


def _placed(columns: Sequence[Column], id_width: int) -> tuple[list[Placed], int]:
    placed, begin = [], 1
    for one in columns:
        width = id_width if one.name == "session" else one.width
        placed.append(Placed(one, begin, width))
        begin += width + 1
    return placed, begin + 1
