# SPDX-License-Identifier: BSD-2-Clause
"""Provides the memory of a measurement, of a chosen kind: each kind costs something else per
packet."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Literal

from livedma.rdma import Access, MemoryMode, ProtectionDomain

__all__ = ["Memory", "allocate"]

_Mode = Literal[MemoryMode.PINNED, MemoryMode.ON_DEMAND]
_ACCESS = (Access.REMOTE_READ, Access.REMOTE_WRITE)


@dataclass(frozen=True)
class Memory:
    """Says where the memory is for the device and for this process. The stack gives it back."""

    key: int
    va: int
    view: memoryview
    stack: ExitStack

    @property
    def handle(self) -> tuple[int, int, memoryview]:
        return (self.key, self.va, self.view)

    def close(self) -> None:
        self.stack.close()


def _region(pd: ProtectionDomain, size: int, mode: _Mode) -> Memory:
    stack = ExitStack()
    buffer = mmap.mmap(-1, size)
    region = stack.enter_context(pd.register(buffer, *_ACCESS, mode=mode))
    return Memory(region.key, region.va, memoryview(buffer), stack)


def _window(pd: ProtectionDomain, size: int, granule: int) -> Memory:
    stack = ExitStack()
    window = stack.enter_context(pd.window(size, *_ACCESS, granule=granule, mapped=size))
    return Memory(window.key, window.va, window.view(0, size), stack)


def _flat(pd: ProtectionDomain, size: int, granule: int) -> Memory:
    """Registers such a window's memory without its table: the difference is translation's cost."""
    window = _window(pd, size, granule)
    region = window.stack.enter_context(pd.register(window.view, *_ACCESS))
    return Memory(region.key, region.va, window.view, window.stack)


_KINDS: dict[str, Callable[[ProtectionDomain, int], Memory]] = {
    "pinned": partial(_region, mode=MemoryMode.PINNED),
    "on-demand": partial(_region, mode=MemoryMode.ON_DEMAND),
    "window": partial(_window, granule=4 << 10),
    "window-2m": partial(_window, granule=2 << 20),
    "flat": partial(_flat, granule=4 << 10),
    "flat-2m": partial(_flat, granule=2 << 20),
}


def allocate(pd: ProtectionDomain, kind: str, size: int) -> Memory:
    """Allocates size bytes that peers may read and write."""
    return _KINDS[kind](pd, size)
