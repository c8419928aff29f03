# SPDX-License-Identifier: BSD-2-Clause
"""Measures how much other programs use the processors during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["OtherLoad"]

# Columns of /proc/stat that belong to no process: idle, waiting for disks, and interrupts, most of
# which are for our own packets.
_NOBODYS = (3, 4, 5, 6)
_GUEST = 8  # the others include it already


class OtherLoad:
    """Measures the load of other programs from when it is made."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._began_s = _busy_s(), _own_s(), time.monotonic()

    def share(self) -> float:
        """Returns the part of all processors' time that other processes took."""
        others_s = _busy_s() - self._busy_s - (_own_s() - self._own_s)
        whole_s = (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
        return min(max(others_s / whole_s, 0.0), 1.0) if whole_s > 0 else 0.0


def _busy_s() -> float:
    first = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:]]
    busy = sum(count for place, count in enumerate(ticks[:_GUEST]) if place not in _NOBODYS)
    return busy / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Returns the time of this process, and of its children that have ended."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system
