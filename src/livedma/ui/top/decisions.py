# SPDX-License-Identifier: BSD-2-Clause
"""Draws events with their time, the newest at the bottom: what was seen, decided and done."""

from __future__ import annotations

from collections.abc import Iterable

from livedma.control.events import Event
from livedma.ui.top.glyphs import Glyphs, printable, wrap
from livedma.ui.top.heading import clock
from livedma.ui.top.picture import Line, Role, rule

__all__ = ["decisions", "event_lines"]

_ROLES: dict[str, Role] = {
    "degraded": "bad",
    "failed": "bad",
    "undo": "warn",
    "refuse": "warn",
    "done": "good",
    "recovered": "good",
    "admit": "good",
    "hand": "strong",
    "policy": "strong",
}
_LINES_MOST = 4  # of one event
_INDENT = 20


def event_lines(event: Event, width: int, glyphs: Glyphs) -> list[Line]:
    kind = printable(event.kind, glyphs)
    where = "" if event.connection is None else f"connection {event.connection}: "
    text = printable(where + event.text, glyphs) + (" (dry run)" if event.dry else "")
    first, *others = wrap(text, width - _INDENT, _LINES_MOST, glyphs) or [""]
    return [
        ((f" {clock(event.wall_s)} ", "quiet"), (f"{kind:<9} ", _ROLES.get(kind, "")), (first, "")),
        *(((" " * _INDENT + one, ""),) for one in others),
    ]


def decisions(
    events: Iterable[Event],
    width: int,
    height: int,
    glyphs: Glyphs,
    *,
    back: int = 0,
    is_focused: bool = False,
    is_steered: bool = True,
) -> list[Line]:
    """Draws the events. back: how many lines above the newest the view ends. is_steered: the server
    decides; else the events tell what is not seen of servers that are watched from outside.
    """
    wanted = height - 1 + back
    found: list[Line] = []
    for event in reversed(list(events)):
        if len(found) >= wanted:
            break
        found = event_lines(event, width, glyphs) + found
    end = max(min(len(found), height - 1), len(found) - back)
    shown = found[max(0, end - height + 1) : end]
    if not shown:
        none = "nothing was decided yet" if is_steered else "nothing is hidden, as far as it knows"
        shown = [((f"   {none}", "quiet"),)]
    older = f"{back} lines back: End shows the newest" if end < len(found) else ""
    title = "decisions" if is_steered else "not seen"
    return [rule(title, older, width, glyphs, strong=is_focused), *shown]
