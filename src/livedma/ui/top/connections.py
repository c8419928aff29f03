# SPDX-License-Identifier: BSD-2-Clause
"""Draws connections: memory as a bar, credits, and the limit of each, as wide as there is room."""

from __future__ import annotations

from dataclasses import dataclass, replace

from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.show.frame import Frame
from livedma.control.words import size
from livedma.monitor.snapshot import Connection
from livedma.ui.top.glyphs import Glyphs, fit, printable, width_of, wrap
from livedma.ui.top.heading import clock
from livedma.ui.top.picture import Line, Role, cut, figure, rule

__all__ = ["connections", "height_wanted"]

_WIDE = 132
_MARK_WIDTH = 4
_ADDRESS_AND_PORT = 21  # of IPv4, at most
_BESIDE_CLIENT = 59  # of a narrow line: the mark, three figures, and a short bar of memory
_LIMIT_WIDTH = 14
_REASONS = {True: (1, 0), False: (3, 2, 1, 0)}  # by whether the terminal is wide
_MARK = {"slow": "!", "limited": "~", "fine": " ", "unknown": "?"}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Says how much of a connection is shown: lines for the words of its diagnosis, and cells of
    its client's address.
    """

    is_wide: bool
    reason_lines: int
    client_width: int = 0

    @property
    def lines(self) -> int:
        return 1 + self.reason_lines


def height_wanted(frame: Frame | None, width: int, most: int) -> int:
    """Returns the lines that are wanted, including the head."""
    count = 0 if frame is None else len(frame.snapshot.connections)
    if not count:
        return 2
    return min(1 + count * _shape(count, width, most - 1).lines, max(2, most))


def _shape(count: int, width: int, room: int) -> _Shape:
    is_wide = width >= _WIDE
    for reason_lines in _REASONS[is_wide]:
        shape = _Shape(is_wide, reason_lines)
        if count * shape.lines <= room:
            return shape
    return _Shape(is_wide, 1)


def connections(
    frame: Frame | None, width: int, height: int, glyphs: Glyphs, first: int = 0
) -> list[Line]:
    """Draws the connections. first: the first line shown below the head, if not all of them fit."""
    if frame is None or not frame.snapshot.connections:
        what = "connections"
        if frame is not None:
            what = "no client is connected" if frame.is_steered else "no connection was seen yet"
        return [rule(what, "", width, glyphs, strong=True)]
    count = len(frame.snapshot.connections)
    shape = _shape(count, width, height - 1)
    shape = replace(shape, client_width=_client_width(frame, shape, width))
    ordered = _ordered(frame, fits=count * shape.lines <= height - 1)
    lines = [line for one in ordered for line in _lines(frame, one, shape, width, glyphs)]
    shown = lines[first : first + height - 1]
    return [_head(frame, shape, width, glyphs), *shown]


def _ordered(frame: Frame, *, fits: bool) -> list[Connection]:
    """Sorts slow connections to the front if not all can be seen."""

    def place(one: Connection) -> tuple[bool, int]:
        diagnosis = frame.diagnosis(one.number)
        return not fits and not (diagnosis is not None and diagnosis.is_degraded), one.number

    return sorted(frame.snapshot.connections, key=place)


def _head(frame: Frame, shape: _Shape, width: int, glyphs: Glyphs) -> Line:
    name_width = shape.client_width
    text = f"    {'connection':<{name_width}} {'bandwidth':>9} {'p99':>8} {'credits':>9}  "
    if shape.is_wide:
        text = (
            f"    {'connection':<{name_width}} {'sessions':>8} {'op/s':>8}"
            f" {'bandwidth':>10} {'p50':>8} {'p99':>8} {'in flight':>9} {'credits':>9}  "
        )
    if not frame.is_steered:
        return cut(((f"{text}server, seen since", "strong"),), width, glyphs)
    legend: Line = (
        (glyphs.leased, "leased"),
        (" leased ", "strong"),
        (glyphs.mapped, "mapped"),
        (" mapped ", "strong"),
        (glyphs.reserved, "quiet"),
        (" reserved", "strong"),
    )
    return cut(((text, "strong"), *legend), width, glyphs)


def _client_width(frame: Frame, shape: _Shape, width: int) -> int:
    """Returns the cells of the first column: it grows for addresses, and where there is much room
    for names, too.
    """
    longest = max(width_of(one.client_end) for one in frame.snapshot.connections)
    wanted = min(longest, _ADDRESS_AND_PORT)
    if shape.is_wide:
        return max(wanted, min(40, 16 + (width - _WIDE) // 4))
    limit = 0 if shape.reason_lines else _LIMIT_WIDTH + 1
    return max(15, min(wanted, width - limit - _BESIDE_CLIENT))


def _lines(frame: Frame, one: Connection, shape: _Shape, width: int, glyphs: Glyphs) -> list[Line]:
    diagnosis = frame.diagnosis(one.number)
    state, role = _state(diagnosis)
    snapshot = frame.snapshot
    known = one.latency.count > 0
    bandwidth = figure(snapshot.per_s(one.bytes), "rate", glyphs)
    p50 = figure(one.latency.p50_ns if known else None, "time", glyphs)
    p99 = figure(one.latency.p99_ns if known else None, "time", glyphs)
    credits_ = f"{min(one.in_flight, one.credits_granted)}/{one.credits_granted}"
    if one.is_tcp:
        credits_ = glyphs.unknown
    mark: Line = ((_MARK[state], role), (f"{one.number:>2} ", "strong"))
    name_width = shape.client_width
    client = f"{_client(one, name_width, glyphs):<{name_width}}"
    if shape.is_wide:
        text = (
            f"{client} {one.sessions:>8}"
            f" {snapshot.per_s(one.operations):>8,.0f} {bandwidth:>10} {p50:>8} {p99:>8}"
            f" {one.in_flight:>9} {credits_:>9}  "
        )
    else:
        text = f"{client} {bandwidth:>9} {p99:>8} {credits_:>9}  "
    room = width - sum(len(part) for part, _ in mark) - len(text)
    end: Line = ()
    if not shape.reason_lines:
        end = ((f" {fit(_limit(diagnosis), _LIMIT_WIDTH, glyphs)}", role),)
        room -= _LIMIT_WIDTH + 1
    first = (*mark, (text, ""), *_memory(frame, one, room, glyphs), *end)
    return [cut(first, width, glyphs), *_reason(one, diagnosis, role, shape, width, glyphs)]


def _client(one: Connection, width: int, glyphs: Glyphs) -> str:
    """Returns as much of the client as there is room for; drops the name first, then the address
    from its left end, since clients of one host differ in their ports.
    """
    words, end = printable(one.client_words, glyphs), printable(one.client_end, glyphs)
    if width_of(words) <= width:
        return words
    if width_of(end) <= width:
        return end
    return fit(end[::-1], width, glyphs)[::-1]


def _state(diagnosis: Diagnosis | None) -> tuple[str, Role]:
    if diagnosis is None:
        return "unknown", "quiet"
    if diagnosis.is_degraded:
        return "slow", "bad"
    return ("fine", "good") if diagnosis.limit is Limit.NOTHING else ("limited", "warn")


def _limit(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return "not judged yet"
    return "fine" if diagnosis.verdict == "fine" else diagnosis.limit.value


def _reason(
    one: Connection,
    diagnosis: Diagnosis | None,
    role: Role,
    shape: _Shape,
    width: int,
    glyphs: Glyphs,
) -> list[Line]:
    if not shape.reason_lines:
        return []
    refuses = ", refuses new sessions" if one.refuses_sessions else ""
    if diagnosis is None:
        verdict = said = f"not judged yet{refuses}"
    else:
        verdict = f"{diagnosis.verdict}{refuses}:"
        said = f"{verdict} {printable(diagnosis.sentence, glyphs)}"
        if diagnosis.room is not None:
            room = diagnosis.room_words
            if shape.reason_lines == 1:
                room = room.partition(" (")[0]  # without the figures behind it
            said += f"; {printable(room, glyphs)}"
    wrapped = wrap(said, width - _MARK_WIDTH - 1, shape.reason_lines, glyphs)
    first, *others = wrapped
    colon = min(len(verdict), len(first))
    lines: list[Line] = [((" " * _MARK_WIDTH, ""), (first[:colon], role), (first[colon:], ""))]
    lines += [((" " * _MARK_WIDTH + one, ""),) for one in others]
    return lines + [()] * (shape.reason_lines - len(lines))


def _memory(frame: Frame, one: Connection, room: int, glyphs: Glyphs) -> Line:
    window = frame.window(one.number)
    if not frame.is_steered:
        since = "its start" if one.learnt_s is None else clock(one.learnt_s)
        server = fit(printable(one.server, glyphs), max(0, room - len(since) - 2), glyphs)
        return ((f"{f'{server}, {since}':<{max(0, room)}}", ""),)
    if window is None:
        return ((f"{glyphs.unknown:<{max(0, room)}}", ""),)
    mapped, whole = size(window.mapped_bytes), size(window.bytes)
    if mapped.split()[-1] == whole.split()[-1]:
        mapped = mapped.split()[0]
    text = f" {mapped + '/' + whole:<11}"
    cells = min(64, room - len(text) - 2)
    leased, rest, reserved = glyphs.bar(
        window.leased_bytes, window.mapped_bytes, window.bytes, cells
    )
    bar: Line = (
        ("[", "quiet"),
        (leased, "leased"),
        (rest, "mapped"),
        (reserved, "quiet"),
        ("]", "quiet"),
    )
    return (*bar, (text, ""))
