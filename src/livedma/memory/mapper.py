# SPDX-License-Identifier: BSD-2-Clause
"""Gives each lease memory of its own out of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.memory.lease import Lease
from livedma.memory.rounding import up

if TYPE_CHECKING:
    from livedma.memory.window import Window


class Mapper:
    """Gives each lease memory of its own, mapped into the window when the lease is taken."""

    def __init__(self, window: Window, timeout: float) -> None:
        self.window, self.timeout = window, timeout

    def room(self, size: int) -> int:
        """Returns for how many pieces of size bytes, in whole granules, there are addresses."""
        return self.window._room_for(up(size, self.window.granule))

    def take(self, size: int) -> Lease:
        """Lends size bytes or more, in whole granules. NoRoomError: no addresses or no memory."""
        if size <= 0:
            raise ValueError("a lease has at least one byte")
        return self.window._lend_whole(size, self.timeout)
