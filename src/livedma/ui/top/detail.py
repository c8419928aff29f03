# SPDX-License-Identifier: BSD-2-Clause
"""Draws one session: why it is slow or not, its figures, its last minute, and its decisions."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.control.diagnose.why import why
from livedma.control.words import duration
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Session, Snapshot
from livedma.ui.top.columns import GRAPHS
from livedma.ui.top.decisions import event_lines
from livedma.ui.top.glyphs import Glyphs, printable, wrap
from livedma.ui.top.model import Model, buckets
from livedma.ui.top.picture import Line, Role, cut, figure, rule

__all__ = ["Detail"]

_WORDS_MOST = 4  # lines of one sentence
_CHART_MOST = 6
_SECONDS = 60  # a column each, if there is room: there are two frames a second
_ABREAST, _NAME_WIDTH = 3, 11  # figures in a line
_TITLE_WIDTH, _MOST_WIDTH = 10, 15
_EVENTS_LEAST = 3


class Detail:
    """Shows one session; of one that has ended, the last that was seen."""

    def __init__(self, model: Model, session: str) -> None:
        self._model = model
        self.id = session
        self._session: Session | None = None
        self._snapshot: Snapshot | None = None

    def lines(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        snapshot = self._model.snapshot
        found = None if snapshot is None else snapshot.session(self.id)
        if found is not None:
            self._session, self._snapshot = found, snapshot
        above = [
            rule(f"session {printable(self.id, glyphs)}", "", width, glyphs, strong=True),
            *self._why(found is not None, width, glyphs),
            *self._figures(width, glyphs),
        ]
        room = height - len(above) - 2 - _EVENTS_LEAST
        charts = self._charts(width, max(1, min(_CHART_MOST, room // len(GRAPHS))), glyphs)
        below = [rule("decisions about its connections", "", width, glyphs)]
        left = height - len(above) - len(charts) - 1
        return [*above, *charts, *below, *self._decisions(width, left, glyphs)][:height]

    def _why(self, is_there: bool, width: int, glyphs: Glyphs) -> list[Line]:
        frame = self._model.frame
        if frame is None:
            return []
        role: Role = ""
        sentences: Sequence[str]
        if not is_there:
            sentences = ("it has ended, or uses RDMA no more; these were its last figures",)
            role = "warn"
        else:
            try:
                answer = why(frame.snapshot, frame.diagnoses, self.id)
            except LivedmaError as error:
                sentences = (str(error),)
            else:
                sentences = answer.lines
                role = "bad" if answer.is_slow else "good"
        found: list[Line] = []
        for sentence in sentences:
            for line in wrap(printable(sentence, glyphs), width - 2, _WORDS_MOST, glyphs):
                found.append(((f" {line}", role),))
            role = ""
        return found

    def _figures(self, width: int, glyphs: Glyphs) -> list[Line]:
        one, snapshot = self._session, self._snapshot
        if one is None or snapshot is None:
            return []

        def shown(value: float | None, kind: str) -> str:
            return figure(value, kind, glyphs)

        known = one.latency.count > 0
        inside = one.inside
        slots = glyphs.unknown
        if inside is not None:
            asked = glyphs.unknown if inside.slots_asked is None else inside.slots_asked
            slots = f"{inside.slots_used_most}/{inside.slots}, asked {asked}"
        clients = {
            c.number: f"{c.number}: {printable(c.client_words, glyphs)}"
            for c in snapshot.connections
        }
        where = ", ".join(clients.get(number, str(number)) for number in one.connections)
        pairs = [
            ("op/s", shown(snapshot.per_s(one.operations), "count")),
            ("p50", shown(one.latency.p50_ns if known else None, "time")),
            ("waits", shown(one.memory_wait_ns, "time")),
            ("bandwidth", shown(snapshot.per_s(one.bytes), "rate")),
            ("p99", shown(one.latency.p99_ns if known else None, "time")),
            ("store", shown(one.storage_ns, "time")),
            ("read", shown(snapshot.per_s(one.read_bytes), "rate")),
            ("mean", shown(one.latency.mean_ns if known else None, "time")),
            ("in flight", shown(one.in_flight, "count")),
            ("written", shown(snapshot.per_s(one.written_bytes), "rate")),
            ("longest", shown(one.latency.max_ns if known else None, "time")),
            ("slots", slots),
        ]
        each = max(_NAME_WIDTH, min(32, (width - 1) // _ABREAST))
        lines: list[Line] = []
        for begin in range(0, len(pairs), _ABREAST):
            line: list[tuple[str, Role]] = [(" ", "")]
            for name, text in pairs[begin : begin + _ABREAST]:
                line += [
                    (f"{name:<{_NAME_WIDTH}}", "quiet"),
                    (f"{text:<{each - _NAME_WIDTH}}", "strong"),
                ]
            lines.append(cut(tuple(line), width, glyphs))
        last: Line = (
            (" connection ", "quiet"),
            (where or glyphs.unknown, "strong"),
        )
        return [
            rule("figures", f"of the last {duration(snapshot.interval_s * 1e9)}", width, glyphs),
            *lines,
            cut(last, width, glyphs),
        ]

    def _charts(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        snapshot = self._snapshot
        if snapshot is None:
            return []
        now_s = (self._model.snapshot or snapshot).at_s
        room = width - _TITLE_WIDTH - _MOST_WIDTH - 3
        cells = max(1, min(_SECONDS, room))
        thick = max(1, room // cells)
        lines = [rule("the last minute", "", width, glyphs)]
        for graph in GRAPHS:
            seen = buckets(self._model.past(self.id), now_s, cells, graph.value)
            most = max((one for one in seen if one is not None), default=None)
            for index, text in enumerate(glyphs.chart(seen, height)):
                drawn = "".join(one * thick for one in text)
                is_first = index == 0
                title = graph.title if is_first else ""
                end = f"most {figure(most, graph.kind, glyphs)}" if is_first else ""
                lines.append(
                    cut(
                        (
                            (f" {title:<{_TITLE_WIDTH}}", "quiet"),
                            (drawn, "past"),
                            (f" {end}", "quiet"),
                        ),
                        width,
                        glyphs,
                    )
                )
        return lines

    def _decisions(self, width: int, height: int, glyphs: Glyphs) -> list[Line]:
        numbers = set(self._session.connections) if self._session is not None else set()
        found: list[Line] = []
        for event in reversed(self._model.events):
            if len(found) >= height:
                break
            if event.connection is None or event.connection in numbers:
                found = event_lines(event, width, glyphs) + found
        return found[-height:] if height > 0 else []
