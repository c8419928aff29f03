# SPDX-License-Identifier: BSD-2-Clause
"""What a person writes to extend or shrink a connection: its number, and how much."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

__all__ = ["Act", "parsed"]

#: Asks the server for a lever by its name on the control socket; returns what was done.
#: LivedmaError: nothing was, and why.
Act = Callable[[str, int, int], Awaitable[str]]

_WORDS = re.compile(r"\s*c?(\d{1,18})\s+(\d{1,12})\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parsed(text: str) -> tuple[int, int]:
    """The connection and the bytes of "1 4MiB". ValueError: it is something else."""
    match = _WORDS.fullmatch(text)
    if match is None or not int(match[1]) or not int(match[2]):
        raise ValueError("write a connection's number and how much: 1 4MiB")
    return int(match[1]), int(match[2]) * _UNITS[match[3].lower()]
