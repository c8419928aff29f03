# SPDX-License-Identifier: BSD-2-Clause
"""Sources give leases of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, Self

from livedma._native.mapping import Mapping


class Lease:
    """Lends a range of memory that the device may use, until it is released."""

    def __init__(
        self,
        key: int,
        va: int,
        length: int,
        mapping: Mapping,
        start: int,
        give_back: Callable[[], None],
    ) -> None:
        """Makes a lease that begins at `start` in the mapping."""
        self.lkey = self.rkey = key
        self.va, self.length = va, length
        self.address = mapping.address + start
        self._mapping: Mapping | None = mapping
        self._start, self._give_back = start, give_back
        self._memory: memoryview | None = None
        self._lock = threading.Lock()

    @property
    def is_released(self) -> bool:
        return self._mapping is None

    @property
    def memory(self) -> memoryview:
        """Returns the memory as Python sees it. It must not be used after the release."""
        with self._lock:
            if self._mapping is None:
                raise ValueError("the lease is released")
            if self._memory is None:
                self._memory = memoryview(self._mapping)[self._start : self._start + self.length]
            return self._memory

    @property
    def piece(self) -> tuple[int, int, int]:
        """Returns the whole lease as (lkey, va, length), for posting."""
        return (self.lkey, self.va, self.length)

    def release(self) -> None:
        """Gives the memory back. Calling it a second time has no effect.

        Raises BufferError while a view of the memory exists. A lease with a mapping of its own
        raises InUseError while something posted uses the memory.
        """
        with self._lock:
            if self._mapping is None:
                return
            if self._memory is not None:
                self._memory.release()
                self._memory = None
            self._give_back()
            self._mapping = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Source(Protocol):
    """Lends memory."""

    def take(self, size: int) -> Lease:
        """Lends at least `size` bytes. Raises NoRoomError if there is no memory now."""
        ...
