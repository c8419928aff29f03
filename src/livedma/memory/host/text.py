# SPDX-License-Identifier: BSD-2-Clause
"""Parses text forms that /proc and /sys share, and writes sizes. No text makes a parser fail."""

from __future__ import annotations

import re

__all__ = ["chosen", "number", "pairs", "pressure", "printable", "size_text"]

_PAIR = re.compile(r"^([A-Za-z_][\w()]*):?[ \t]+(\d{1,20})( kB)?[ \t]*$", re.ASCII | re.MULTILINE)
_CHOSEN = re.compile(r"\[([^\[\]\s]+)\]")
_STALL = re.compile(r"^(some|full) (.*)$", re.MULTILINE)
_AVERAGE = re.compile(r"\b(avg10|avg60|avg300)=(\d{1,3}\.\d\d)\b", re.ASCII)


def pairs(text: str) -> dict[str, int]:
    """Parses lines of a name and a number, as in vmstat, meminfo, status; kB become bytes."""
    return {name: int(value) * (1024 if unit else 1) for name, value, unit in _PAIR.findall(text)}


def number(text: str) -> int | None:
    """Parses a number. None: it is something else, such as `max` or `unlimited`."""
    return int(text) if re.fullmatch(r"\d{1,20}", text, re.ASCII) else None


def chosen(text: str) -> str | None:
    """Returns the chosen word, such as `madvise` of `always [madvise] never`."""
    found = _CHOSEN.search(text)
    return found[1] if found else None


def pressure(text: str) -> dict[str, dict[str, float]] | None:
    """Returns the per cent of the time in which some or all tasks waited for memory; None: not
    measured.
    """
    found = {
        kind: {name: float(value) for name, value in _AVERAGE.findall(rest)}
        for kind, rest in _STALL.findall(text)
    }
    return {kind: values for kind, values in found.items() if len(values) == 3} or None


def printable(text: str) -> str:
    """Makes names that other users choose safe for a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def size_text(size: int) -> str:
    """Writes a size as 4 GiB, 16.6 MiB, 0 B."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1023.5 and len(units) > 1:  # which would print as 1,024
        value /= 1024
        units.pop(0)
    digits = 0 if value >= 99.95 or value == int(value) else 1
    return f"{value:,.{digits}f} {units[0]}"
