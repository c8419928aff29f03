"""Memory on loan, and what may be asked for some."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, Self

from livedma._native.mapping import Mapping


class Lease:
    """A range of memory that the device may use, until it is released."""

    def __init__(
        self,
        key: int,
        va: int,
        length: int,
        mapping: Mapping,
        start: int,
        give_back: Callable[[], None],
    ) -> None:
        """start: where in the mapping it begins."""
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
        """For Python; not to be used after the release."""
        with self._lock:
            if self._mapping is None:
                raise ValueError("the lease is released")
            if self._memory is None:
                self._memory = memoryview(self._mapping)[self._start : self._start + self.length]
            return self._memory

    @property
    def piece(self) -> tuple[int, int, int]:
        """All of it, for posting."""
        return (self.lkey, self.va, self.length)

    def release(self) -> None:
        """Once; again does nothing. BufferError while something is on its memory.

        InUseError, from one that has a mapping of its own: something posted uses it still.
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
    """What lends memory."""

    def take(self, size: int) -> Lease:
        """NoRoomError if there is none now."""
        ...
