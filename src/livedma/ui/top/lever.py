# SPDX-License-Identifier: BSD-2-Clause
"""Reads what a person writes to extend or shrink a connection: its number, and how much."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from livedma import sizes

__all__ = ["Act", "parsed"]

#: Asks the server for a lever by its name on the control socket; returns what was done.
#: LivedmaError: nothing was, and why.
Act = Callable[[str, int, int], Awaitable[str]]

_WORDS = re.compile(r"\s*c?(\d{1,18})\s+(\d{1,12})\s*([a-z]*)\s*", re.IGNORECASE)


def parsed(text: str) -> tuple[int, int]:
    """Reads a connection's number and bytes: "1 4MiB". Raises ValueError for anything else."""
    match = _WORDS.fullmatch(text)
    try:
        if match is not None and int(match[1]):
            return int(match[1]), sizes.read(match[2] + match[3])
    except ValueError:
        pass
    raise ValueError("write a connection's number and how much: 1 4MiB")
