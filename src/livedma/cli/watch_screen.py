# SPDX-License-Identifier: BSD-2-Clause
"""Draws a picture on a terminal again and again, and leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from livedma.cli.paint import Paint
from livedma.ui.top.picture import Line, Role

__all__ = ["Screen", "can_draw"]

_BEGIN, _END = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_SIZE = (80, 24)
_COLORS: Mapping[Role, str] = {
    "strong": "bold",
    "quiet": "dim",
    "good": "green",
    "warn": "amber",
    "bad": "red",
    "loud": "bold",
}


def can_draw() -> bool:
    """Returns whether standard output is a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


class Screen:
    """Takes a screen of its own on the terminal, as long as `opened` lasts."""

    def __init__(self) -> None:
        self._paint = Paint.on_output()

    @property
    def size(self) -> tuple[int, int]:
        """Returns columns and lines, as of now."""
        return shutil.get_terminal_size(_SIZE)

    @contextmanager
    def opened(self) -> Iterator[bool]:
        """Yields whether keys can be read."""
        with _without_echo() as has_keyboard:
            self._write(_BEGIN)
            try:
                yield has_keyboard
            finally:
                self._write(_END)

    def draw(self, lines: Sequence[Line]) -> None:
        """Draws a picture over the one before. The last line has no end, so nothing scrolls."""
        painted = (self.painted(line) + _REST_OF_LINE for line in lines)
        self._write(_HOME + "\r\n".join(painted) + _REST)

    def painted(self, line: Line) -> str:
        return "".join(self._paint.color(_COLORS.get(role, ""), text) for text, role in line)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def _without_echo() -> Iterator[bool]:
    """Keeps typed letters out of the picture. A process in the background may not do that: yields
    whether this one could.
    """
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
        is_ours = os.tcgetpgrp(keyboard) == os.getpgrp()
    except (OSError, ValueError, termios.error):
        is_ours = False
    if not is_ours:
        yield False
        return
    quiet = termios.tcgetattr(keyboard)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(keyboard, termios.TCSANOW, quiet)
    try:
        yield True
    finally:
        with contextlib.suppress(termios.error):
            termios.tcflush(keyboard, termios.TCIFLUSH)
            termios.tcsetattr(keyboard, termios.TCSANOW, before)
