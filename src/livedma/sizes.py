# SPDX-License-Identifier: BSD-2-Clause
"""Reads and writes sizes exactly, in bytes and powers of 1024: 64KiB, 1 MiB."""

from __future__ import annotations

import re

__all__ = ["exact", "read"]

_UNITS = {"t": 1 << 40, "g": 1 << 30, "m": 1 << 20, "k": 1 << 10, "": 1}
_SIZE = re.compile(r"(\d{1,18})([kmgt]?)(?:i?b)?", re.IGNORECASE)


def read(text: str) -> int:
    """Reads 64, 4KiB or 1M. Raises ValueError for anything else, and for 0."""
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is no size: write 64, 4KiB or 1MiB")
    return int(match[1]) * _UNITS[match[2].lower()]


def exact(size: int, gap: str = " ") -> str:
    """Writes a size in the largest unit that divides it; the gap stands before the unit."""
    for unit, factor in _UNITS.items():
        if unit and size and size % factor == 0:
            return f"{size // factor}{gap}{unit.upper()}iB"
    return f"{size} bytes"
