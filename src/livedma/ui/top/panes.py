# SPDX-License-Identifier: BSD-2-Clause
"""Draws lines of text on the terminal again only if they have changed."""

from __future__ import annotations

from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from livedma.ui.top.picture import Line, Role

__all__ = ["Pane"]

# The terminal's own colours, which suit its background; a word or a sign goes with each.
_STYLES: dict[Role, Style] = {
    "": Style(),
    "strong": Style(bold=True),
    "quiet": Style(dim=True),
    "good": Style(color="green"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
    "loud": Style(bold=True, reverse=True),
    "chosen": Style(reverse=True),
    "leased": Style(color="green"),
    "mapped": Style(color="cyan"),
    "past": Style(color="cyan"),
}


class Pane(Widget):
    """Shows the lines that it is given."""

    DEFAULT_CSS = "Pane { height: 1; width: 100%; }"

    def __init__(self, id: str, *, can_focus: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.can_focus = can_focus
        self._lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        before, self._lines = self._lines, lines
        width = self.size.width
        changed = [
            Region(0, y, width, 1)
            for y, (old, new) in enumerate(zip_longest(before, lines))
            if old != new
        ]
        if changed and width:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        strip = Strip([Segment(text, _STYLES[role]) for text, role in line if text])
        return strip.adjust_cell_length(self.size.width, Style())
