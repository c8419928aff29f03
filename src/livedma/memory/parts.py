"""Parts of a window: what is mapped by one step, and what of it is lent."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.memory.backing import PAGE, Block
from livedma.memory.holes import Holes
from livedma.memory.rounding import up

_LINE = 64  #: leases share no cache line


class Part:
    """A range of the window with its memory. The window's lock guards it."""

    def __init__(self, offset: int, block: Block, *, is_lent_whole: bool = False) -> None:
        self.offset, self.block = offset, block
        self.length = block.mapping.length
        self.is_lent_whole = is_lent_whole  # to one who asked for a mapping of its own
        self.is_leaving = False
        self.leases = 0
        self.holes = Holes(0 if is_lent_whole else self.length)
        self._own_views = block.mapping.views  # those of the device

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def leased(self) -> int:
        """Bytes."""
        return self.length - self.holes.free

    @property
    def kind(self) -> str:
        """What memory it has: see backing.Block."""
        return self.block.kind

    @property
    def views(self) -> int:
        """That the program has of its memory."""
        return self.block.mapping.views - self._own_views

    def take(self, size: int) -> int | None:
        """The offset, in the window, of so many bytes that are free."""
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
    """Of a window, in bytes where nothing else is said. hits and misses are the device's."""

    reserved: int
    mapped: int
    leased: int
    leases: int  #: how many
    parts: int
    pieces: int  #: runs of memory, neighbours merged
    descriptors: int  #: that the pages behind it take
    descriptors_otherwise: int  #: that pages of the other size would take
    hits: int
    misses: int
    extends: int
    shrinks: int
    cut: int  #: parts that peers were still using when their time was up
    last_extend_s: float
