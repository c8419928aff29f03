# SPDX-License-Identifier: BSD-2-Clause
"""Reads free memory by order (/proc/buddyinfo), and tells how much is usable for large blocks.

The indexes are the kernel's (mm/vmstat.c; debugfs shows them in extfrag/), to three decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Zone", "together", "zones"]

_ZONE = re.compile(
    r"^Node (\d{1,6}), zone +(\S{1,32})((?: +\d{1,18}){1,64}) *$", re.ASCII | re.MULTILINE
)


@dataclass(frozen=True)
class Zone:
    node: int | None  #: None: of all nodes
    name: str
    free: tuple[int, ...]  #: blocks of 2**order pages, by order

    @property
    def free_pages(self) -> int:
        return sum(blocks << order for order, blocks in enumerate(self.free))

    @property
    def largest_order(self) -> int | None:
        """Returns the order of the largest free block; None: nothing is free."""
        return max((order for order, blocks in enumerate(self.free) if blocks), default=None)

    def blocks(self, order: int) -> int:
        """Returns how many blocks of 2**order pages can be had, including those cut from larger
        ones.
        """
        return sum(
            blocks << (larger - order) for larger, blocks in enumerate(self.free) if larger >= order
        )

    def unusable_index(self, order: int) -> float:
        """Returns the part of the free memory that is in smaller pieces: 0 none, 1 all."""
        pages = self.free_pages
        if not pages:
            return 1.0
        return (pages - (self.blocks(order) << order)) * 1000 // pages / 1000

    def fragmentation_index(self, order: int) -> float | None:
        """Tells why a request would fail: towards 0 for lack of memory, towards 1 because memory is
        in pieces. None: the request would not fail.
        """
        total = sum(self.free)
        if not total:
            return 0.0
        if self.blocks(order):
            return None
        ideal = self.free_pages * 1000 // (1 << order)
        return (1000 - (1000 + ideal) // total) / 1000


def zones(text: str) -> list[Zone]:
    return [
        Zone(int(node), name, tuple(int(blocks) for blocks in free.split()))
        for node, name, free in _ZONE.findall(text)
    ]


def together(parts: Iterable[Zone], node: int | None = None) -> Zone:
    """Adds up all zones, or those of a node, as if they were one."""
    columns = zip_longest(
        *(part.free for part in parts if node is None or part.node == node), fillvalue=0
    )
    return Zone(node, "all", tuple(sum(column) for column in columns))
