"""How much DMA memory all connections of this host may have together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from livedma import memory
from livedma.control.plan import Room
from livedma.memory import accounting, memlock
from livedma.privilege import CAP_IPC_LOCK, holds

__all__ = ["limited", "room"]


@contextmanager
def limited(limit_bytes: int | None) -> Iterator[None]:
    """While it is open, this process has no more DMA memory than that; None: as before.

    It is the process's budget (`livedma.memory.budget`), which binds new connections as well: a
    client that opens many of them does not get around it.
    """
    if limit_bytes is None:
        yield
        return
    before = accounting.process().limit
    memory.budget(limit_bytes)
    try:
        yield
    finally:
        memory.budget(before)


def room() -> Room:
    """What is left of the budget and of RLIMIT_MEMLOCK. Whether the host has so much memory is
    found out by mapping it.
    """
    process = accounting.process()
    limits = (process.limit, None if holds(CAP_IPC_LOCK) else memlock.limit())
    left = [max(limit - process.charged, 0) for limit in limits if limit is not None]
    return Room(min(left, default=None))
