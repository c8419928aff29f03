# SPDX-License-Identifier: BSD-2-Clause
"""Forecasts when the calls of a connection will need more buffers than there are: pure.

Three figures are followed: buffers that calls hold or wait for, calls that arrive, and sessions
that are busy. By Little's law arrivals times the time that each holds a buffer are buffers, and so
are sessions times what each of them needs; so all three are counted in buffers, and can be
compared.
Arrivals have to rise, and one of the others with them; the smaller rise counts. A store that gets
slower makes calls hold buffers for longer without more arrivals: then there is no forecast, since
more buffers would only make its queue longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from livedma.control.diagnose.room import SessionRoom, Use, room_of
from livedma.control.diagnose.trend import BINS, Trend, binned, trend
from livedma.control.words import duration
from livedma.monitor.snapshot import Connection, Session, Snapshot

__all__ = ["Forecast", "Forecaster", "Outlook", "needed_buffers"]

_WIDTHS_S = (0.1, 0.2, 0.4, 0.8)  # of bins: the shortest that shows a rise counts
_BUSY_S = 2.0  # since a session's last call; it is busy until then
_LATELY_S = 10.0  # what the room for sessions is computed from
_GAP_S = 2.0  # without a snapshot; what was seen before says nothing of now
_RISE_LEAST = 3.0  # buffers over the span: less is not worth a step
_SOON_S = 0.05
_PEAK = 2.0  # standard deviations


@dataclass(frozen=True, slots=True)
class Forecast:
    """Foretells that `buffers`, all that there are, will be needed in `full_s` from `at_s` on, if
    the need goes on rising. `needed` is the need now; `spread` is how far peaks exceed it.
    """

    connection: int
    at_s: float
    full_s: float
    needed: float
    spread: float
    buffers: int
    buffers_per_s: float
    sessions_per_s: float

    @property
    def sentence(self) -> str:
        """Says it for people: 56 of 56 buffers in about 0.8 s (4.1 sessions more each second)."""
        rise = f"{self.buffers_per_s:.1f} buffers"
        if self.sessions_per_s > 0:
            rise = f"{self.sessions_per_s:.1f} sessions"
        when = f"in about {duration(self.full_s * 1e9)}" if self.full_s >= _SOON_S else "any moment"
        return (
            f"{self.buffers} of {self.buffers} buffers {when} "
            f"({rise} more each second): {self.needed:.0f} are needed now"
        )


@dataclass(frozen=True, slots=True)
class Outlook:
    """Tells what is ahead of a connection. No forecast: its need does not rise steadily. No room:
    its memory is not managed, or unknown.
    """

    connection: int
    forecast: Forecast | None
    room: SessionRoom | None


class Forecaster:
    """Forecasts for the connections of a server. `see` takes each snapshot, in order."""

    def __init__(self) -> None:
        self._cases: dict[int, _Case] = {}

    def see(self, snapshot: Snapshot) -> Mapping[int, Outlook]:
        """Returns what is ahead of each connection over RDMA, by its number."""
        cases = {
            one.number: self._cases.get(one.number) or _Case()
            for one in snapshot.connections
            if not one.is_tcp
        }
        self._cases = cases
        its: dict[int, list[Session]] = {number: [] for number in cases}
        for session in snapshot.sessions:
            for number in session.connections:
                if number in its and (session.operations or session.in_flight):
                    its[number].append(session)
        return {
            one.number: cases[one.number].see(one, its[one.number], snapshot)
            for one in snapshot.connections
            if one.number in cases
        }


def needed_buffers(connection: Connection) -> int:
    """Returns the buffers that calls hold or wait for; 0 where that is not known."""
    inside = connection.inside
    return 0 if inside is None else inside.buffers_taken + inside.buffers_wanted


class _Case:
    """Follows one connection."""

    def __init__(self) -> None:
        most = round(BINS * _WIDTHS_S[-1] / _WIDTHS_S[0]) * 2
        self._needed: deque[tuple[float, float]] = deque(maxlen=most)
        self._arrivals: deque[tuple[float, float]] = deque(maxlen=most)
        self._sessions: deque[tuple[float, float]] = deque(maxlen=most)
        self._uses: deque[tuple[float, Use]] = deque()
        self._called_s: dict[str, float] = {}  # when each session had its last call
        self._in_progress = 0

    def see(self, connection: Connection, busy: Iterable[Session], snapshot: Snapshot) -> Outlook:
        inside, at_s = connection.inside, snapshot.at_s
        if inside is None or snapshot.interval_s <= 0:
            return Outlook(connection.number, None, None)
        if self._needed and at_s - self._needed[-1][0] > _GAP_S:
            self._forget()
        for session in busy:
            self._called_s[session.id] = at_s
        self._called_s = {
            name: last_s for name, last_s in self._called_s.items() if at_s - last_s <= _BUSY_S
        }
        sessions = len(self._called_s)
        needed = needed_buffers(connection)
        began = connection.operations + inside.in_progress - self._in_progress
        self._in_progress = inside.in_progress
        self._needed.append((at_s, float(needed)))
        self._arrivals.append((at_s, max(began, 0) / snapshot.interval_s))
        self._sessions.append((at_s, float(sessions)))
        calls = max(connection.in_flight, inside.in_progress)
        self._uses.append((at_s, Use(sessions, needed, calls)))
        while at_s - self._uses[0][0] > _LATELY_S:
            self._uses.popleft()
        room = room_of(connection, inside, [use for _, use in self._uses])
        return Outlook(connection.number, self._forecast(connection, at_s, inside.buffers), room)

    def _forget(self) -> None:
        for series in (self._needed, self._arrivals, self._sessions, self._uses):
            series.clear()
        self._called_s.clear()

    def _forecast(self, connection: Connection, at_s: float, buffers: int) -> Forecast | None:
        if not any(needed for _, needed in self._needed):
            return None
        for width_s in _WIDTHS_S:
            found = self._rise(width_s)
            if found is None:
                continue
            needed, per_s, spread, sessions_per_s = found
            left = max(buffers - needed - spread, 0.0)
            return Forecast(
                connection.number,
                at_s,
                left / per_s,
                needed,
                spread,
                buffers,
                per_s,
                sessions_per_s,
            )
        return None

    def _rise(self, width_s: float) -> tuple[float, float, float, float] | None:
        """Returns the buffers that are needed now, how many more each second, how far peaks exceed
        them, and how many more sessions there are each second. None: there is no steady rise.
        """
        bins = binned(self._needed, width_s)
        needed, arrivals, sessions = (
            trend(bins),
            trend(binned(self._arrivals, width_s)),
            trend(binned(self._sessions, width_s)),
        )
        if needed is None or arrivals is None or sessions is None:
            return None
        of_arrivals, of_sessions = _in_buffers(arrivals, needed), _in_buffers(sessions, needed)
        per_s = min(of_arrivals, max(needed.per_s, of_sessions))
        span_s = bins[-1][0] - bins[0][0]
        if per_s * span_s < _RISE_LEAST:
            return None
        middle_s = sum(bin_s for bin_s, _ in bins) / len(bins)
        now = needed.mean + per_s * (bins[-1][0] - middle_s)
        return now, per_s, _PEAK * needed.spread, sessions.per_s


def _in_buffers(rising: Trend, needed: Trend) -> float:
    """Returns a figure's rise in buffers a second: as many as there were for one of it."""
    return rising.per_s * needed.mean / rising.mean if rising.mean > 0 else 0.0
