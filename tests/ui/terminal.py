# SPDX-License-Identifier: BSD-2-Clause
"""The program on a terminal that is made up, fed by hand; and what is on its screen, as text."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ui.made_frames import WALL_S
from textual.pilot import Pilot

from livedma.ui.feeds import Item
from livedma.ui.top.app import Top
from livedma.ui.top.glyphs import UNICODE, Glyphs
from livedma.ui.top.lever import Act
from livedma.ui.top.model import Model

SCREENS = Path(__file__).parent / "screens"


class Terminal:
    """now_s: what all clocks say."""

    def __init__(self, glyphs: Glyphs = UNICODE, act: Act | None = None) -> None:
        self.now_s = WALL_S
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        model = Model(lambda: self.now_s, lambda: self.now_s)
        self.app = Top(model, self._items(), glyphs, act=act)
        self.pilot: Pilot[None] | None = None

    async def _items(self) -> AsyncIterator[Item]:
        while True:
            yield await self._queue.get()
            self._queue.task_done()

    async def feed(self, *items: Item) -> None:
        """Returns once they are on the screen."""
        for item in items:
            self._queue.put_nowait(item)
        await self.settle()

    async def settle(self) -> None:
        assert self.pilot is not None
        while not self._queue.empty():
            await asyncio.sleep(0)
        await self.pilot.pause()
        self.app.draw()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        assert self.pilot is not None
        await self.pilot.press(*keys)
        await self.settle()

    async def tick(self, seconds: float) -> None:
        self.now_s += seconds
        await self.settle()

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def rows(self) -> list[str]:
        """Sessions in sight: the first four digits of their ids."""
        begin = next(n for n, line in enumerate(self.lines) if line.startswith(" session ")) + 1
        rows = []
        for line in self.lines[begin:]:
            if not line[1:5].strip() or line[0] not in " >" or line[5:9] != "c0ff":
                break
            rows.append(line[1:5])
        return rows


@asynccontextmanager
async def terminal(
    size: tuple[int, int] = (80, 24), glyphs: Glyphs = UNICODE, act: Act | None = None
) -> AsyncIterator[Terminal]:
    it = Terminal(glyphs, act)
    async with it.app.run_test(size=size) as pilot:
        it.pilot = pilot
        await pilot.pause()
        yield it


def shown(
    what: Callable[[Terminal], object],
    size: tuple[int, int] = (80, 24),
    glyphs: Glyphs = UNICODE,
    act: Act | None = None,
) -> None:
    """Runs a test on it."""

    async def run() -> None:
        async with terminal(size, glyphs, act) as it:
            found = what(it)
            if asyncio.iscoroutine(found):
                await found

    asyncio.run(run())


def compare(name: str, text: str) -> None:
    """With the screen of that name; LIVEDMA_RENEW=1 writes it anew, for people to look at."""
    path = SCREENS / f"{name}.txt"
    if os.environ.get("LIVEDMA_RENEW"):
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text(), f"{path} differs: LIVEDMA_RENEW=1 makes it anew"
