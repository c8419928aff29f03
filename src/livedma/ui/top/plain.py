# SPDX-License-Identifier: BSD-2-Clause
"""Prints the picture as plain text, once: for pipes, scripts and simple terminals."""

from __future__ import annotations

from livedma.ui.top.connections import connections, height_wanted
from livedma.ui.top.decisions import decisions
from livedma.ui.top.glyphs import Glyphs
from livedma.ui.top.heading import heading
from livedma.ui.top.model import Model
from livedma.ui.top.picture import as_text
from livedma.ui.top.sessions import HEAD, Sessions

__all__ = ["plain"]

_EVENTS = 20  # lines
_ALL = 1 << 20


def plain(model: Model, sessions: Sessions, width: int, glyphs: Glyphs) -> str:
    """Returns all connections and all sessions, however many there are."""
    frame = model.frame
    count = 0 if frame is None else len(frame.snapshot.sessions)
    lines = [
        *heading(model, width, glyphs),
        *connections(frame, width, height_wanted(frame, width, _ALL), glyphs),
        *sessions.lines(width, count + HEAD, glyphs, is_focused=False),
        *decisions(
            model.events,
            width,
            _EVENTS + 1,
            glyphs,
            is_steered=frame is None or frame.is_steered,
        ),
    ]
    return "\n".join(filter(None, map(as_text, lines)))
