# SPDX-License-Identifier: BSD-2-Clause
"""Sorts the listed sessions, in an order that stands still long enough to be read."""

from __future__ import annotations

from collections.abc import Iterable

from livedma.monitor.snapshot import Session, Snapshot
from livedma.ui.top.columns import COLUMNS, Column

__all__ = ["Order", "matches"]

_STANDS_S = 2.0


def matches(words: Iterable[str], session: Session, clients: dict[int, str]) -> bool:
    """Returns whether each word is in its id or a client's address, or is its state or c2."""
    return all(
        word in session.id
        or any(word == f"c{number}" for number in session.connections)
        or any(word in clients.get(number, "") for number in session.connections)
        or (word in ("waits", "waiting") and bool(session.memory_wait_ns))
        or (word == "idle" and not session.operations and not session.in_flight)
        or (word == "busy" and bool(session.operations or session.in_flight))
        for word in words
    )


class Order:
    """Sorts the sessions of the snapshots that it is given."""

    def __init__(self) -> None:
        self.by: Column = next(one for one in COLUMNS if one.name == "bandwidth")
        self.is_reversed = False
        self._words: list[str] = []
        self._made_s: float | None = None
        self._of: Snapshot | None = None
        self._sessions: dict[str, Session] = {}
        self._ids: list[str] = []

    def sort_by(self, column: Column) -> None:
        """Sorts by a column; the same one again reverses the order."""
        self.is_reversed = column is self.by and not self.is_reversed
        self.by = column
        self._made_s = None

    def sort_beside(self, step: int) -> None:
        self.sort_by(COLUMNS[(COLUMNS.index(self.by) + step) % len(COLUMNS)])

    def set_filter(self, text: str) -> None:
        self._words = text.lower().split()
        self._made_s = None

    @property
    def is_most_first(self) -> bool:
        return self.by.most_first is not self.is_reversed

    def session(self, id_: str) -> Session:
        return self._sessions[id_]

    def ids(self, snapshot: Snapshot) -> list[str]:
        """Returns the ids. A listed row stays where it is until the order is made anew."""
        is_new = snapshot is not self._of
        if is_new:
            self._of = snapshot
            self._sessions = {one.id: one for one in snapshot.sessions}
        if self._made_s is None or not 0 <= snapshot.at_s - self._made_s < _STANDS_S:
            self._made_s = snapshot.at_s
            self._ids = self._sorted(snapshot, self._matching(snapshot, snapshot.sessions))
        elif is_new:
            kept = [one for one in self._ids if one in self._sessions]
            known = set(kept)
            others = [one for one in snapshot.sessions if one.id not in known]
            come = self._matching(snapshot, others) if others else []
            self._ids = kept + self._sorted(snapshot, come)
        return self._ids

    def _matching(self, snapshot: Snapshot, sessions: Iterable[Session]) -> list[Session]:
        if not self._words:
            return list(sessions)
        clients = {one.number: one.client_words.lower() for one in snapshot.connections}
        return [one for one in sessions if matches(self._words, one, clients)]

    def _sorted(self, snapshot: Snapshot, sessions: Iterable[Session]) -> list[str]:
        """Sorts; unknown values come last, and equal ones in the order of their ids."""
        known: list[tuple[float | str, str]] = []
        unknown = []
        for one in sorted(sessions, key=lambda one: one.id):
            value = self.by.value(snapshot, one)
            if value is None:
                unknown.append(one.id)
            else:
                known.append((value, one.id))
        known.sort(key=_value, reverse=self.is_most_first)
        return [*(id_ for _, id_ in known), *unknown]


def _value(one: tuple[float | str, str]) -> float | str:
    return one[0]
