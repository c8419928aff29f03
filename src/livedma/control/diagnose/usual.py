# SPDX-License-Identifier: BSD-2-Clause
"""Learns how long calls of a connection take while nothing slows them. Views compare with it."""

from __future__ import annotations

import math

__all__ = ["UsualLatency"]

_MEMORY_S = 20.0  # older values count for little


class UsualLatency:
    """Averages a connection's p99 over about the last 20 s in which nothing slowed it."""

    def __init__(self) -> None:
        self.p99_s: float | None = None  #: None: the connection has had no calls, or only slow ones

    def see(self, p99_s: float, interval_s: float, *, is_slow: bool) -> None:
        """Averages an interval in. A slow one changes nothing: it must not become what is usual."""
        if is_slow or p99_s <= 0:
            return
        if self.p99_s is None:
            self.p99_s = p99_s
            return
        weight = 1 - math.exp(-interval_s / _MEMORY_S)
        self.p99_s += weight * (p99_s - self.p99_s)
