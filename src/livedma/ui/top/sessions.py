# SPDX-License-Identifier: BSD-2-Clause
"""Draws the sessions' table: its head, and the rows in sight."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.monitor.snapshot import Session, Snapshot
from livedma.ui.top.columns import GRAPHS, Column, Graph, Placed, place
from livedma.ui.top.glyphs import Glyphs
from livedma.ui.top.model import Model, buckets
from livedma.ui.top.order import Order
from livedma.ui.top.picture import Line, Role, cut, rule
from livedma.wire.words import amount

__all__ = ["HEAD", "Sessions"]

HEAD = 2  #: lines above the first row
_GRAPH_MOST = 60  # cells: one a second


class Sessions:
    """Draws the table. A chosen session stays chosen wherever its row goes; else the first is."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.order = Order()
        self.filter = ""
        self.graph: Graph = GRAPHS[0]
        self._chosen: str | None = None
        self._first = 0

    def set_filter(self, text: str) -> None:
        self.filter = text
        self.order.set_filter(text)

    def next_graph(self) -> None:
        self.graph = GRAPHS[(GRAPHS.index(self.graph) + 1) % len(GRAPHS)]

    def move(self, rows: int) -> None:
        self._choose(self._row() + rows)

    def choose_line(self, y: int) -> None:
        """Chooses the row at a line of the last picture."""
        self._choose(self._first + y - HEAD)

    def current(self) -> str | None:
        """Returns the session whose row is chosen."""
        ids = self._ids()
        return ids[self._row()] if ids else None

    def column_at(self, x: int, width: int) -> Column | None:
        """Returns the column whose title is there."""
        placed, _ = place(width)
        return next((one.column for one in placed if one.begin <= x <= one.begin + one.width), None)

    def _choose(self, row: int) -> None:
        ids = self._ids()
        row = max(0, min(row, len(ids) - 1))
        self._chosen = ids[row] if row else None

    def _ids(self) -> list[str]:
        snapshot = self._model.snapshot
        return [] if snapshot is None else self.order.ids(snapshot)

    def _row(self) -> int:
        if self._chosen is None:
            return 0
        try:
            return self._ids().index(self._chosen)
        except ValueError:  # it has ended, or does not fit the filter any more
            self._chosen = None
            return 0

    def lines(self, width: int, height: int, glyphs: Glyphs, *, is_focused: bool) -> list[Line]:
        ids, snapshot = self._ids(), self._model.snapshot
        row, room = self._row(), max(1, height - HEAD)
        self._first = max(min(self._first, row, len(ids) - room), row - room + 1, 0)
        shown = ids[self._first : self._first + room]
        head = [self._title(len(shown), width, glyphs, is_focused), self._titles(width, glyphs)]
        if snapshot is None:
            return head
        if not shown:
            return [*head, ((f"   {self._why_none(snapshot)}", "quiet"),)]
        placed, graph = place(width)
        return head + [
            self._line(
                snapshot,
                one,
                placed,
                graph,
                width,
                glyphs,
                is_focused and self._first + index == row,
            )
            for index, one in enumerate(shown)
        ]

    def _why_none(self, snapshot: Snapshot) -> str:
        if snapshot.sessions:
            return "no session fits the filter: Esc shows all"
        frame = self._model.frame
        if frame is not None and not frame.is_steered:
            return "no session was seen yet"
        return "no session yet: `livedma load HOST` makes some"

    def _title(self, shown: int, width: int, glyphs: Glyphs, is_focused: bool) -> Line:
        ids = self._ids()
        all_ = 0 if self._model.snapshot is None else len(self._model.snapshot.sessions)
        count = amount(all_, "session")
        if self.filter:
            count = f"{len(ids):,} of {count}"
        arrow = glyphs.down if self.order.is_most_first else glyphs.up
        parts = [count, f"by {self.order.by.title} {arrow}"]
        if self.filter:
            parts.append(f"filter: {self.filter}")
        span = f"{self._first + 1}-{self._first + shown} of {len(ids):,}"
        is_part = shown < len(ids)
        return rule(", ".join(parts), span if is_part else "", width, glyphs, strong=is_focused)

    def _titles(self, width: int, glyphs: Glyphs) -> Line:
        placed, begin = place(width)
        line: list[tuple[str, Role]] = []
        at = 0
        for one in placed:
            line.append((" " * (one.begin - at), "strong"))
            at = one.begin + one.width
            is_by = one.column is self.order.by
            line.append((one.put(one.column.title, glyphs), "loud" if is_by else "strong"))
        graph = f"{self.graph.title}, 1 min"
        if len(graph) > width - begin:
            graph = self.graph.title
        line.append((" " * (begin - at) + graph, "strong"))
        return cut(tuple(line), width, glyphs)

    def _line(
        self,
        snapshot: Snapshot,
        id_: str,
        placed: Sequence[Placed],
        graph: int,
        width: int,
        glyphs: Glyphs,
        is_chosen: bool,
    ) -> Line:
        session = self.order.session(id_)
        row: Role = "chosen" if is_chosen else _role(session)
        at, line = 1, [(">" if is_chosen else " ", row)]
        for one in placed:
            text = one.put(one.column.text(snapshot, session, glyphs), glyphs)
            is_waiting = one.column.name == "waits" and bool(session.memory_wait_ns)
            line.append((" " * (one.begin - at), row))
            line.append((text, "warn" if is_waiting and not is_chosen else row))
            at = one.begin + one.width
        cells = min(width - graph, _GRAPH_MOST)
        if cells > 0:
            seen = buckets(self._model.past(id_), snapshot.at_s, cells, self.graph.value)
            line.append((" " * (graph - at), row))
            line.append((glyphs.sparkline(seen), "past"))
        return cut(tuple(line), width, glyphs)


def _role(session: Session) -> Role:
    return "" if session.operations or session.in_flight else "quiet"
