# SPDX-License-Identifier: BSD-2-Clause
"""Live captures have in common that they give batches until a count, a time or `stop()`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from livedma._native.tap import SNAPLEN_MAX
from livedma._native.wire import Batch

__all__ = ["Counters", "Direction", "LiveSource"]

Direction = Literal["rx", "tx", "both"]

BATCH_PACKETS = 4096


@dataclass(frozen=True)
class Counters:
    """Counts frames. matched = sampled_out + recorded + ring_dropped + unreadable."""

    frames: int = 0
    roce: int = 0
    matched: int = 0
    sampled_out: int = 0
    recorded: int = 0
    ring_dropped: int = 0
    unreadable: int = 0
    bytes: int = 0


class LiveSource(ABC):
    """Captures packets live. Iterating gives batches of packets as they arrive, and an empty one at
    least every `interval_s`, until `stop()` is called, `count` packets have come or `seconds` have
    passed. The batch is always the same object, filled anew: use what is in it before asking for
    the next. The source reports through `say` what happens to it.
    """

    #: pcap's number for the frames' link-layer header
    link: ClassVar[int]

    def __init__(
        self,
        *,
        snaplen: int,
        count: int | None,
        seconds: float | None,
        interval_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._interval_ms = max(1, int(interval_s * 1000))
        self._stopped = False
        self._left = count
        self._seconds = seconds
        # Room for a full batch of usual frames, and for at least one of the largest.
        room = min(BATCH_PACKETS * snaplen, 16 << 20)
        self._batch = Batch(BATCH_PACKETS, max(room, SNAPLEN_MAX))

    @abstractmethod
    def _poll(self, timeout_ms: int, limit: int) -> int:
        """Refills the batch. Returns how many packets it has."""

    @abstractmethod
    def _follow(self) -> None:
        """Follows what happens to the source, between batches. It may call stop()."""

    @abstractmethod
    def _detach(self) -> None:
        """Detaches. After it, only packets that are already in the ring can be polled."""

    @abstractmethod
    def counters(self) -> Counters: ...

    @abstractmethod
    def close(self) -> None:
        """Ends the capture. It may be called again."""

    @property
    @abstractmethod
    def modes(self) -> str:
        """Returns how the source captures, for people."""

    @property
    def outlives_kill(self) -> bool:
        """Returns whether a killed process would leave something behind."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self) -> None:
        """Ends the iteration once the ring is empty; a signal handler may call it."""
        self._stopped = True

    def __iter__(self) -> Iterator[Batch]:
        end_ns = None if self._seconds is None else time.monotonic_ns() + int(self._seconds * 1e9)
        while not self._stopped and self._left != 0:
            timeout_ms = self._interval_ms
            if end_ns is not None:
                timeout_ms = min(timeout_ms, (end_ns - time.monotonic_ns()) // 1_000_000)
                if timeout_ms < 0:
                    break
            self._fill(timeout_ms)
            yield self._batch
            self._follow()
        self._detach()
        while self._left != 0 and self._fill(0):
            yield self._batch

    def _fill(self, timeout_ms: int) -> int:
        if self._left is None:
            return self._poll(timeout_ms, 0xFFFFFFFF)
        added = self._poll(timeout_ms, self._left)
        self._left -= added
        return added
