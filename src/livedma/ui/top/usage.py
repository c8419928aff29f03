# SPDX-License-Identifier: BSD-2-Clause
"""Explains the keys and the columns."""

from __future__ import annotations

from livedma.ui.top.columns import COLUMNS
from livedma.ui.top.glyphs import Glyphs
from livedma.ui.top.picture import Line, cut, rule

__all__ = ["footer", "usage"]

_KEYS = (
    ("arrows, PgUp, Home ...", "choose a session; in decisions: go back in time"),
    ("Enter", "why it is slow or not, its figures and its last minute"),
    ("/", "filter: parts of an id or address; c2, busy, idle, waits"),
    ("Esc", "shows all again; leaves a session, or this"),
    ("< >", "sort by the column beside (or click on a title)"),
    ("r", "the other way round"),
    ("g", "another figure for the last minute"),
    ("+ -", "more or less DMA memory for a connection: 1 4MiB"),
    ("Space", "the picture stands still; once more, and it goes on"),
    ("Tab", "to the decisions, to the connections, and back"),
    ("?, q", "shows the keys, and hides them again; leaves"),
)
_MEANS = (
    ("memory", "reserved: addresses; mapped: has memory; leased: in use just now"),
    ("credits", "calls under way, of those that the client may have"),
    ("waits, store", "of a call for DMA memory, and in the store; slots: used of all"),
    ("! ~ ?", "slow; fast enough, but something limits it; not judged yet"),
)


def usage(width: int, glyphs: Glyphs) -> list[Line]:
    lines = [rule("keys", "", width, glyphs, strong=True)]
    lines += [cut(((f" {key:<23}", "strong"), (text, "")), width, glyphs) for key, text in _KEYS]
    lines.append(rule("sort by", "", width, glyphs))
    half = len(COLUMNS) // 2
    for part in (COLUMNS[:half], COLUMNS[half:]):
        sorts = "  ".join(f"{one.key} {one.title:<9}" for one in part)
        lines.append(cut(((f" {sorts}", ""),), width, glyphs))
    lines.append(rule("what is shown", "", width, glyphs))
    lines += [cut(((f" {name:<14}", "strong"), (text, "")), width, glyphs) for name, text in _MEANS]
    lines.append(((" A dash: it cannot be known.", ""),))
    return lines


def footer(keys: str, width: int, glyphs: Glyphs) -> Line:
    """Writes the line of keys. keys: "key what, key what"."""
    line: Line = ((" ", ""),)
    for one in keys.split(", "):
        key, _, what = one.partition(" ")
        line = (*line, ("  " if len(line) > 1 else "", ""), (key, "strong"), (f" {what}", ""))
    return cut(line, width, glyphs)
