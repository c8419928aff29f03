# SPDX-License-Identifier: BSD-2-Clause
"""A part of a window is what one step maps. It knows how much of it is lent."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.memory.backing import PAGE, Block
from livedma.memory.holes import Holes
from livedma.memory.rounding import up

_LINE = 64  #: leases share no cache line


class Part:
    """Holds a range of the window with its memory. The window's lock guards it."""

    def __init__(self, offset: int, block: Block, *, is_lent_whole: bool = False) -> None:
        self.offset, self.block = offset, block
        self.length = block.mapping.length
        self.is_lent_whole = is_lent_whole  # as one lease, whose taker wanted a mapping of its own
        self.is_leaving = False
        self.leases = 0
        self.holes = Holes(0 if is_lent_whole else self.length)
        self._own_views = block.mapping.views  # the device's

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def leased(self) -> int:
        """Returns the bytes that are lent."""
        return self.length - self.holes.free

    @property
    def kind(self) -> str:
        """Returns the kind of its memory, as in backing.Block."""
        return self.block.kind

    @property
    def views(self) -> int:
        """Returns the number of views that the program has of its memory."""
        return self.block.mapping.views - self._own_views

    def take(self, size: int) -> int | None:
        """Lends `size` bytes. Returns their offset in the window; None: they are not free, or the
        part is leaving.
        """
        if self.is_leaving:
            return None
        start = self.holes.take(_room_for(size), PAGE if size >= PAGE else _LINE)
        if start is None:
            return None
        self.leases += 1
        return self.offset + start

    def give(self, offset: int, size: int) -> None:
        self.holes.give(offset - self.offset, _room_for(size))
        self.leases -= 1

    def __repr__(self) -> str:
        return f"<part at {self.offset}, {self.length} bytes ({self.kind}), {self.leased} lent>"


def _room_for(size: int) -> int:
    return up(size, _LINE)


@dataclass(frozen=True)
class Statistics:
    """Describes a window, in bytes unless stated otherwise. hits and misses are the device's."""

    reserved: int
    mapped: int
    leased: int
    leases: int  #: how many
    parts: int
    pieces: int  #: runs of memory, neighbours merged
    descriptors: int  #: how many the pages behind it take
    descriptors_otherwise: int  #: how many pages of the other size would take
    hits: int
    misses: int
    extends: int  #: steps that mapped memory: extend(), and shards of pools
    shrinks: int
    cut: int  #: parts that peers were still using when their time was up
    last_extend_s: float
