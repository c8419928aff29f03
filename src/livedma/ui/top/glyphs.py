# SPDX-License-Identifier: BSD-2-Clause
"""Draws with characters: bars, sparklines and charts, for terminals with Unicode or without."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ASCII", "UNICODE", "Glyphs", "fit", "fitting", "printable", "width_of", "wrap"]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Holds the characters to draw with. levels: from almost nothing to all; full: a whole cell of
    a chart."""

    leased: str
    mapped: str
    reserved: str
    levels: str
    full: str
    rule: str
    unknown: str
    more: str  #: where text was cut
    down: str
    up: str
    is_ascii: bool

    def bar(self, leased: int, mapped: int, whole: int, cells: int) -> tuple[str, str, str]:
        """Draws a window's parts in so many cells; a part that exists has at least one."""
        if whole <= 0 or cells <= 0:
            return "", "", ""
        upto_mapped = _cells(mapped, whole, cells)
        upto_leased = min(_cells(leased, whole, cells), upto_mapped)
        if mapped > leased and upto_leased == upto_mapped > 1:
            upto_leased -= 1
        return (
            self.leased * upto_leased,
            self.mapped * (upto_mapped - upto_leased),
            self.reserved * (cells - upto_mapped),
        )

    def sparkline(self, values: Sequence[float | None]) -> str:
        """Draws values against the highest; blank for None."""
        most = max((one for one in values if one is not None), default=0.0) or 1.0
        last = len(self.levels) - 2  # if the highest filled its cell, rows would touch
        return "".join(
            " " if one is None else self.levels[round(one / most * last)] for one in values
        )

    def chart(self, values: Sequence[float | None], height: int) -> list[str]:
        """Draws a column for each value, against the highest; returns lines from the top."""
        steps = len(self.levels)
        most = max((one for one in values if one is not None), default=0.0)
        columns = []
        for value in values:
            if value is None:
                columns.append(" " * height)
                continue
            level = round(value / most * height * steps) if most > 0 else 0
            level = max(1, level)  # a value of 0 is still a value
            whole, rest = divmod(level, steps)
            top = self.levels[rest - 1] if rest else ""
            columns.append((self.full * whole + top).ljust(height))
        return ["".join(column[row] for column in columns) for row in reversed(range(height))]


def _cells(part: int, whole: int, cells: int) -> int:
    """Returns at most all cells, and at least one for a part that exists."""
    return min(cells, max(round(part / whole * cells), 1 if part > 0 else 0))


UNICODE = Glyphs("█", "▒", "·", "▁▂▃▄▅▆▇█", "█", "─", "\N{EN DASH}", "…", "▼", "▲", is_ascii=False)
ASCII = Glyphs("#", "=", ".", "_.-=*#", "#", "-", "-", "~", "v", "^", is_ascii=True)


def fitting(environ: Mapping[str, str] = os.environ) -> Glyphs:
    """Returns glyphs that the locale says its terminal can show; without one it is C: ASCII."""
    found = [environ.get(key, "") for key in ("LC_ALL", "LC_CTYPE", "LANG")]
    if sys.flags.utf8_mode and found[1] == "C.UTF-8":
        found[1] = ""  # Python has put it there itself, in place of C (PEP 538)
    name = next(filter(None, found), "C")
    return UNICODE if "utf" in name.lower() else ASCII


def printable(text: str, glyphs: Glyphs) -> str:
    """Replaces characters that would act on a terminal; the text may come from a client."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        one if one.isprintable() and (one.isascii() or not glyphs.is_ascii) else "?" for one in text
    )


def width_of(text: str) -> int:
    """Returns the width in cells."""
    if text.isascii():
        return len(text)
    return sum(_cell_width(one) for one in text)


def _cell_width(one: str) -> int:
    if unicodedata.combining(one):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1


def fit(text: str, width: int, glyphs: Glyphs) -> str:
    """Cuts text to a width; a mark shows that it was cut."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, left = [], width - 1
    for one in text:
        left -= _cell_width(one)
        if left < 0:
            break
        kept.append(one)
    return "".join(kept) + glyphs.more


def wrap(text: str, width: int, lines: int, glyphs: Glyphs) -> list[str]:
    """Breaks text between words into at most so many lines; a mark shows if more is missing."""
    found: list[str] = []
    rest = text.split()
    while rest and len(found) < lines:
        if len(found) == lines - 1:
            found.append(fit(" ".join(rest), width, glyphs))
            break
        line = [rest.pop(0)]
        while rest and width_of(" ".join([*line, rest[0]])) <= width:
            line.append(rest.pop(0))
        found.append(fit(" ".join(line), width, glyphs))
    return found
