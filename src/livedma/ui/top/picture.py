# SPDX-License-Identifier: BSD-2-Clause
"""Makes lines of text whose parts have a role: the picture of a terminal, before there is one."""

from __future__ import annotations

from typing import Literal

from livedma.control.words import duration, rate
from livedma.ui.top.glyphs import Glyphs, fit, width_of

__all__ = ["Line", "Role", "as_text", "cells", "cut", "figure", "rule", "spread"]

Role = Literal[
    "", "strong", "quiet", "good", "warn", "bad", "loud", "chosen", "leased", "mapped", "past"
]
Line = tuple[tuple[str, Role], ...]


def as_text(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def cells(line: Line) -> int:
    return sum(width_of(text) for text, _ in line)


def cut(line: Line, width: int, glyphs: Glyphs) -> Line:
    """Cuts a line to a width."""
    if cells(line) <= width:
        return line
    found: list[tuple[str, Role]] = []
    for text, role in line:
        left = width - cells(tuple(found))
        if width_of(text) >= left:
            found.append((fit(text + " ", left, glyphs), role))
            break
        found.append((text, role))
    return tuple(found)


def spread(left: Line, right: Line, width: int, glyphs: Glyphs) -> Line:
    """Puts one text at each end; the right one stays, whatever has to be cut."""
    room = max(0, width - cells(right) - 1)
    left = cut(left, room, glyphs)
    gap = " " * max(0, width - cells(left) - cells(right))
    return cut((*left, (gap, ""), *right), width, glyphs)


def rule(left: str, right: str, width: int, glyphs: Glyphs, *, strong: bool = False) -> Line:
    """Draws a title in a rule across the screen."""
    title = fit(f" {left} ", max(0, width - width_of(right) - 8), glyphs)
    end = f" {right} " if right else ""
    between = max(0, width - 2 - width_of(title) - width_of(end) - 1)
    role: Role = "strong" if strong else ""
    return cut(
        (
            (glyphs.rule * 2, "quiet"),
            (title, role),
            (glyphs.rule * between, "quiet"),
            (end, ""),
            (glyphs.rule, "quiet"),
        ),
        width,
        glyphs,
    )


def figure(value: float | None, kind: str, glyphs: Glyphs) -> str:
    """Writes a figure. kind: "count", "rate" of bytes, or "time" in ns. An unknown value is not
    shown as 0."""
    if value is None:
        return glyphs.unknown
    if not value:
        return "0"
    if kind == "rate":
        return rate(value)
    if kind == "time":
        return duration(value)
    return f"{value:,.0f}"
