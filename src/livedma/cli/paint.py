# SPDX-License-Identifier: BSD-2-Clause
"""Formats text for a terminal: colours, bars and line breaks. Elsewhere text stays plain."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TextIO

__all__ = ["Paint"]

_COLORS = {"red": "31", "amber": "33", "green": "32", "blue": "36", "dim": "2", "bold": "1"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_EMPTY = "░"
_PLAIN_WIDTH = 80
_NARROWEST = 40


class Paint:
    """Formats text by what one stream can show.

    NO_COLOR (https://no-color.org) turns colours off, and so does TERM=dumb or none. In an encoding
    without block characters bars are ASCII. Colours only repeat what words and figures say.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        is_able = self.is_terminal and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        self.has_colors = is_able and not os.environ.get("NO_COLOR")
        self.has_blocks = is_able and _can_encode(stream)

    @classmethod
    def on_output(cls) -> Paint:
        return cls(sys.stdout)

    @classmethod
    def on_errors(cls) -> Paint:
        return cls(sys.stderr)

    @classmethod
    def plain(cls) -> Paint:
        """Returns the paint of a file: no colours, ASCII, 80 columns."""
        return cls(io.StringIO())

    @property
    def width(self) -> int:
        """Counts the terminal's columns now, or those of COLUMNS; 80 if there is no terminal."""
        if not self.is_terminal:
            return _PLAIN_WIDTH
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal():
            return max(int(columns), _NARROWEST)
        try:
            found = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            found = 0
        return max(found or _PLAIN_WIDTH, _NARROWEST)  # 0: the terminal has no size set

    def color(self, name: str, text: str) -> str:
        """Colours a text. name: red, amber, green, blue, dim or bold; "" leaves it unchanged."""
        if not self.has_colors or not name or not text:
            return text
        return f"\x1b[{_COLORS[name]}m{text}\x1b[0m"

    def red(self, text: str) -> str:
        return self.color("red", text)

    def dim(self, text: str) -> str:
        return self.color("dim", text)

    def bold(self, text: str) -> str:
        return self.color("bold", text)

    def folded(self, lines: Iterable[str]) -> list[str]:
        """Returns the lines; on a terminal, long ones go on below, indented two columns more."""
        if not self.is_terminal:
            return list(lines)
        found = []
        for line in lines:
            indent = " " * (len(line) - len(line.lstrip()))
            first, *more = self.wrapped(line.strip(), indent)
            found += [first, *self.wrapped(" ".join(more), indent + "  ")] if more else [first]
        return found

    def complaint(self, name: str, sentence: str) -> str:
        """Formats `livedma load: ADDR is missing`, with a red name on a terminal."""
        if not self.is_terminal:
            return f"{name}: {sentence}"
        first, *more = self.wrapped(f"{name}: {sentence}")
        return "\n".join([first.replace(f"{name}:", self.red(f"{name}:"), 1), *more])

    def bar(self, shares: Sequence[float], cells: int, color: str = "") -> str:
        """Returns a bar of so many cells. shares: of the whole, side by side, with an end each.

        With blocks it is exact to an eighth of a cell.
        """
        if not self.has_blocks:
            parts = "|".join("#" * round(cells * share) for share in shares)
            return parts[:cells].ljust(cells, ".")
        full = "▏".join(_blocks(share, cells) for share in shares)[:cells]
        return self.color(color, full) + self.dim(_EMPTY * (cells - len(full)))

    def spark(self, values: Sequence[float], cells: int) -> str:
        """Returns a small curve from 0 to the largest value; "" if the stream shows no blocks."""
        top = max(values, default=0.0)
        if not self.has_blocks or top <= 0:
            return ""
        count = min(cells, len(values))
        edges = [round(i * len(values) / count) for i in range(count + 1)]
        means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
        last = len(_LEVELS) - 1
        return "".join(_LEVELS[min(last, int(mean / top * len(_LEVELS)))] for mean in means)

    def wrapped(
        self, text: str, first: str = "", *, first_color: str = "", color: str = "", most: int = 0
    ) -> list[str]:
        """Breaks a text at words to fit the width; later lines begin below the first one's text.

        first: what stands before the text. most: the most columns, however wide the terminal is.
        """
        import textwrap

        width = min(self.width, most or self.width)
        lines = textwrap.wrap(
            text,
            max(width - len(first), _NARROWEST // 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if not lines:
            return [self.color(first_color, first.rstrip())]
        word = first.strip()
        beginning = first.replace(word, self.color(first_color, word), 1)
        befores = [beginning, *[" " * len(first)] * (len(lines) - 1)]
        return [
            before + self.color(color, line) for before, line in zip(befores, lines, strict=True)
        ]


def _blocks(share: float, cells: int) -> str:
    full, rest = divmod(round(max(share, 0.0) * cells * 8), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def _can_encode(stream: TextIO) -> bool:
    try:
        (_EIGHTHS + _LEVELS + _EMPTY).encode(stream.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True
