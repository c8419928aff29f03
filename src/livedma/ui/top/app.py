# SPDX-License-Identifier: BSD-2-Clause
"""Runs on the terminal: it takes items of a feed, and draws them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from livedma.ui.feeds import Item
from livedma.ui.top.glyphs import Glyphs
from livedma.ui.top.lever import Act
from livedma.ui.top.main import MainScreen
from livedma.ui.top.model import Model
from livedma.ui.top.screens import Drawn, HelpScreen

__all__ = ["Top"]

_CLOCK_S = 1.0


class Top(App[None]):
    """Runs the program. interval_s: no more often is it drawn; None: with each frame and each
    decision. act: carries levers out; None: there are none here."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "livedma top"
    CSS = """
    #heading { height: 2; }
    #sessions, #body { height: 1fr; }
    #filter, #order { height: 1; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "pause", show=False),
        Binding("question_mark", "usage", show=False),
    ]

    def __init__(
        self,
        model: Model,
        items: AsyncIterator[Item],
        glyphs: Glyphs,
        interval_s: float | None = None,
        act: Act | None = None,
    ) -> None:
        super().__init__(ansi_color=True)
        self.model = model
        self._items = items
        self._glyphs = glyphs
        self._interval_s = interval_s
        self._is_due = False
        self.main = MainScreen(model, glyphs, act)

    def get_default_screen(self) -> MainScreen:
        return self.main

    def on_mount(self) -> None:
        self.set_interval(self._interval_s or _CLOCK_S, self.draw)
        self.run_worker(self._watch(), exit_on_error=True)

    async def _watch(self) -> None:
        async for item in self._items:
            self.model.take(item)
            if self._interval_s is None and not self._is_due:
                self._is_due = True
                self.call_later(self.draw)

    def draw(self) -> None:
        self._is_due = False
        if isinstance(self.screen, Drawn):
            self.screen.draw()

    def action_pause(self) -> None:
        self.model.pause()
        self.draw()

    def action_usage(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.model, self._glyphs))
