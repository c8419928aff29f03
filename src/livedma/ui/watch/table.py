# SPDX-License-Identifier: BSD-2-Clause
"""Draws a watch: totals, connections, sessions, and what cannot be seen, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from livedma.control.words import rate
from livedma.monitor.snapshot import Connection, Session
from livedma.ui.top.glyphs import Glyphs, printable, wrap
from livedma.ui.top.heading import clock
from livedma.ui.top.order import Order
from livedma.ui.top.picture import Line, Role, cut, rule, spread
from livedma.ui.watch.columns import CONNECTIONS, Placed, place, session_columns
from livedma.ui.watch.views import View, words_of_threads, words_of_waits
from livedma.wire.words import amount

__all__ = ["Table", "waiting_for"]

T = TypeVar("T", Connection, Session)

_LINES_MOST = 3  # of one sentence
_INDENT = 5
_SHARE = 3  # connections take at most one of so many parts of a screen


def waiting_for(view: View) -> str:
    """Returns a sentence if nothing has been seen so far."""
    return f"nothing yet: waiting for NFS/RDMA traffic at {view.where}"


class Table:
    """Draws one view after the other; listed sessions stand still long enough to be read."""

    def __init__(self) -> None:
        self._order = Order()

    def lines(self, view: View, width: int, height: int | None, glyphs: Glyphs) -> list[Line]:
        """Returns the picture's lines. height: None: all of it is shown, however much that is."""
        head = _heading(view, width, glyphs)
        foot = list(_unseen(view, width, glyphs))
        if not view.connections and not view.snapshot.sessions:
            body: list[Line] = [(), ((f"   {printable(waiting_for(view), glyphs)}", ""),)]
        else:
            room = None if height is None else max(4, height - len(head) - len(foot))
            most = None
            if room is not None:  # what the sessions do not need is for the connections
                most = max(room // _SHARE, room - 2 - len(view.snapshot.sessions))
            upper = _connections(view, width, most, glyphs)
            lower = None if room is None else room - len(upper)
            body = [*upper, *self._sessions(view, width, lower, glyphs)]
        lines = [*head, *body, *foot]
        return lines if height is None else lines[:height]

    def _sessions(self, view: View, width: int, room: int | None, glyphs: Glyphs) -> Iterator[Line]:
        snapshot = view.snapshot
        ids = self._order.ids(snapshot)
        title = f"{amount(len(ids), 'session')}, by bandwidth {glyphs.down}"
        yield rule(title if ids else "no session yet", "", width, glyphs, strong=True)
        if not ids:
            return
        count = len(ids) if room is None else max(1, room - 2)
        if count < len(ids):
            count = max(1, count - 1)  # a line is for the others
        rows = [self._order.session(one) for one in ids[:count]]
        placed = place(session_columns(ids), rows, snapshot, width, glyphs)
        yield _titles(placed, width, glyphs)
        for one in rows:
            role: Role = "" if one.operations or one.in_flight else "quiet"
            yield _row(view, one, placed, role, width, glyphs)
        if others := [self._order.session(one) for one in ids[count:]]:
            yield cut(((f" {_sum(view, others, glyphs)}", "quiet"),), width, glyphs)


def _heading(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    snapshot = view.snapshot
    title: Line = ((" livedma watch ", "strong"), (f" {printable(view.where, glyphs)}", ""))
    state: Line = ((f" {clock(snapshot.wall_s)} ", "good"),)
    read = sum(one.read_bytes for one in view.connections)
    written = sum(one.written_bytes for one in view.connections)
    parts = [
        amount(len(view.connections), "connection"),
        amount(len(snapshot.sessions), "session"),
        f"{snapshot.per_s(sum(one.operations for one in view.connections)):,.0f} op/s",
        f"read {rate(snapshot.per_s(read))}",
        f"written {rate(snapshot.per_s(written))}",
    ]
    lines = [
        spread(title, state, width, glyphs),
        cut(((f" {'  '.join(parts)}", ""),), width, glyphs),
    ]
    if threads := words_of_threads(snapshot):
        lines.append(cut(((f" {threads}", ""),), width, glyphs))
    return lines


def _connections(view: View, width: int, room: int | None, glyphs: Glyphs) -> list[Line]:
    """Returns the connections; where not all fit, the busiest ones, and without further words."""
    every = view.connections
    if not every:
        return []
    words = {one.number: list(_words(view, one, width, glyphs)) for one in every}
    head = rule(amount(len(every), "connection"), "", width, glyphs, strong=True)
    count = len(every)
    if room is not None and 2 + count + sum(map(len, words.values())) > room:
        words = {}
        if 2 + count > room:
            count = max(1, room - 3)  # a line is for the others
    busiest = sorted(every, key=lambda one: (-one.bytes, -one.operations, one.number))[:count]
    rows = sorted(busiest, key=lambda one: one.number)
    placed = place(CONNECTIONS, rows, view.snapshot, width, glyphs)
    lines = [head, _titles(placed, width, glyphs)]
    for one in rows:
        is_slow = bool(view.trouble(one.number))
        quiet: Role = "" if one.operations or one.in_flight else "quiet"
        row = _row(view, one, placed, "bad" if is_slow else quiet, width, glyphs)
        if is_slow:
            row = (("!", "bad"), (row[0][0][1:], "bad"), *row[1:])
        lines += [row, *words.get(one.number, ())]
    if others := [one for one in every if one not in rows]:
        lines.append(cut(((f" {_sum(view, others, glyphs)}", "quiet"),), width, glyphs))
    return lines


def _words(view: View, one: Connection, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """Yields what is to be said below a connection: what limits it, and what calls wait for."""
    if trouble := view.trouble(one.number):
        said = printable(trouble, glyphs)
        for text in wrap(said, width - _INDENT - 1, _LINES_MOST, glyphs):
            yield ((" " * _INDENT, ""), (text, "bad"))
    if waits := words_of_waits(one):
        for text in wrap(waits, width - _INDENT - 1, _LINES_MOST, glyphs):
            yield ((" " * _INDENT, ""), (text, "quiet"))


def _titles(placed: Sequence[Placed[T]], width: int, glyphs: Glyphs) -> Line:
    text = "".join(f" {one.put(one.column.title, glyphs)}" for one in placed)
    return cut(((text.rstrip(), "strong"),), width, glyphs)


_BAD: dict[str, Role] = {"resent": "warn", "NAKs": "warn", "no reply": "bad"}


def _row(
    view: View, row: T, placed: Sequence[Placed[T]], role: Role, width: int, glyphs: Glyphs
) -> Line:
    line: list[tuple[str, Role]] = []
    for one in placed:
        text = one.column.text(view.snapshot, row, glyphs)
        is_bad = one.column.title in _BAD and text != "0"
        shown = _BAD[one.column.title] if is_bad else role
        line.append((f" {one.put(text, glyphs)}", shown))
    return cut(tuple(line), width, glyphs)


def _sum(view: View, others: Sequence[Connection] | Sequence[Session], glyphs: Glyphs) -> str:
    snapshot = view.snapshot
    operations = snapshot.per_s(sum(one.operations for one in others))
    moved = rate(snapshot.per_s(sum(one.bytes for one in others)))
    return f"{glyphs.more} {len(others):,} more: {operations:,.0f} op/s, {moved}"


def _unseen(view: View, width: int, glyphs: Glyphs) -> Iterator[Line]:
    if not view.unseen:
        return
    yield rule("not seen", "", width, glyphs, strong=True)
    for sentence in view.unseen:
        for text in wrap(printable(sentence, glyphs), width - 2, _LINES_MOST, glyphs):
            yield ((f" {text}", "warn"),)
