# SPDX-License-Identifier: BSD-2-Clause
"""Shows what livedma watch sees: as a live picture, as lines of text, as objects."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from livedma.cli.output import drop_output
from livedma.cli.watch_screen import Screen, can_draw
from livedma.errors import LivedmaError
from livedma.ui.top.glyphs import ASCII, fitting
from livedma.ui.watch.table import Table
from livedma.ui.watch.text import Lines
from livedma.ui.watch.views import View

__all__ = ["Live", "Nothing", "Objects", "Showing", "Text", "can_draw"]


class Showing(Protocol):
    """Shows one view after the other."""

    def opened(self, stop: asyncio.Event) -> AbstractContextManager[None]:
        """Prepares the output; the caller enters it in its event loop. It may set `stop`."""

    def view(self, view: View) -> None: ...


class Nothing:
    """Shows nothing: others read the metrics."""

    def opened(self, stop: asyncio.Event) -> AbstractContextManager[None]:
        return nullcontext()

    def view(self, view: View) -> None:
        pass


class Objects(Nothing):
    """Prints an object for each view."""

    def view(self, view: View) -> None:
        _print([json.dumps(view.as_json())])


class Text(Nothing):
    """Prints lines of text."""

    def __init__(self) -> None:
        self._lines = Lines()

    def opened(self, stop: asyncio.Event) -> AbstractContextManager[None]:
        _print([self._lines.header])
        return nullcontext()

    def view(self, view: View) -> None:
        _print(self._lines.of(view))


def _print(lines: Iterable[str]) -> None:
    """Writes at once: another program may wait for it. Raises LivedmaError where there is no room,
    and BrokenPipeError where nobody reads any more, which is no failure.
    """
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise LivedmaError(f"cannot write standard output: {error.strerror or error}") from None


class Live:
    """Draws on a terminal, and leaves the last picture there."""

    def __init__(self, is_ascii: bool) -> None:
        self._screen, self._table = Screen(), Table()
        self._glyphs = ASCII if is_ascii else fitting()
        self._last: View | None = None

    @contextmanager
    def opened(self, stop: asyncio.Event) -> Iterator[None]:
        def press() -> None:
            keys = os.read(keyboard, 64)
            if not keys or b"q" in keys:
                stop.set()
                loop.remove_reader(keyboard)

        loop, keyboard = asyncio.get_running_loop(), 0
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        try:
            with self._screen.opened() as has_keyboard:
                if has_keyboard:
                    keyboard = sys.stdin.fileno()
                    loop.add_reader(keyboard, press)
                try:
                    yield
                finally:
                    if has_keyboard:
                        loop.remove_reader(keyboard)
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            self._keep()

    def view(self, view: View) -> None:
        self._last = view
        self._draw()

    def _draw(self) -> None:
        if self._last is not None:
            columns, lines = self._screen.size
            self._screen.draw(self._table.lines(self._last, columns, lines, self._glyphs))

    def _keep(self) -> None:
        """Prints the last picture, where it stays."""
        if self._last is not None and self._last.connections:
            columns, lines = self._screen.size
            for line in self._table.lines(self._last, columns, lines - 3, self._glyphs):
                print(self._screen.painted(line))
