# SPDX-License-Identifier: BSD-2-Clause
"""Remembers files that were changed just now: a delegation of one would soon be recalled again."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Quiet"]

QUIET_S = 30.0
_MOST = 4096


class Quiet:
    """Remembers files by handle; the oldest are forgotten first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until_s: dict[bytes, float] = {}

    def __contains__(self, handle: bytes) -> bool:
        until_s = self._until_s.get(handle)
        return until_s is not None and self._clock() < until_s

    def add(self, handle: bytes) -> None:
        """Notes that the file was changed now."""
        self._until_s.pop(handle, None)
        self._until_s[handle] = self._clock() + QUIET_S
        if len(self._until_s) > _MOST:
            del self._until_s[next(iter(self._until_s))]
