# SPDX-License-Identifier: BSD-2-Clause
"""Shows the screens over the main one: one session, and the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from livedma.ui.top.detail import Detail
from livedma.ui.top.glyphs import Glyphs
from livedma.ui.top.heading import heading
from livedma.ui.top.model import Model
from livedma.ui.top.panes import Pane
from livedma.ui.top.picture import Line
from livedma.ui.top.usage import footer, usage

__all__ = ["Drawn", "HelpScreen", "SessionScreen"]

_HEAD, _FOOT = 2, 1


class Drawn(Screen[None]):
    """Draws itself again on demand."""

    def __init__(self, model: Model, glyphs: Glyphs) -> None:
        super().__init__()
        self.model, self.glyphs = model, glyphs

    def draw(self) -> None:
        raise NotImplementedError

    def on_resize(self) -> None:
        self.draw()

    @property
    def has_panes(self) -> bool:
        """Returns whether it can draw: not before it is composed, nor while it is removed."""
        return self.is_mounted and bool(self.query(Pane))

    def pane(self, name: str) -> Pane:
        return self.query_one(f"#{name}", Pane)

    def draw_heading(self) -> None:
        self.pane("heading").show(heading(self.model, self.size.width, self.glyphs))


class _Over(Drawn):
    """Shows a screen between the heading and a line of keys, some of which lead back."""

    KEYS = "Esc back, space pause, ? help, q back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,backspace", "back", show=False)
    ]

    def compose(self) -> ComposeResult:
        yield Pane("heading")
        yield Pane("body")
        yield Pane("footer")

    def draw(self) -> None:
        width, height = self.size
        if not self.has_panes or not width:
            return
        self.draw_heading()
        self.pane("body").show(self.body(width, height - _HEAD - _FOOT))
        self.pane("footer").show([footer(self.KEYS, width, self.glyphs)])

    def body(self, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    def action_back(self) -> None:
        self.dismiss()


class SessionScreen(_Over):
    """Shows one session."""

    def __init__(self, model: Model, glyphs: Glyphs, session: str) -> None:
        super().__init__(model, glyphs)
        self.detail = Detail(model, session)

    def body(self, width: int, height: int) -> list[Line]:
        return self.detail.lines(width, height, self.glyphs)


class HelpScreen(_Over):
    """Shows the keys."""

    KEYS = "Esc back, ? back, q back"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "back", show=False)]

    def body(self, width: int, height: int) -> list[Line]:
        return usage(width, self.glyphs)[:height]
