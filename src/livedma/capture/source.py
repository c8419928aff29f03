"""What live captures have in common: batches until it is enough."""

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
    """What was counted. matched = sampled_out + recorded + ring_dropped + unreadable."""

    frames: int = 0
    roce: int = 0
    matched: int = 0
    sampled_out: int = 0
    recorded: int = 0
    ring_dropped: int = 0
    unreadable: int = 0
    bytes: int = 0


class LiveSource(ABC):
    """Iterating gives batches of packets as they arrive, and an empty one at least every
    `interval_s`, until `stop()` is called, `count` packets came or `seconds` have passed. It is one
    batch, filled again and again: use what is in it before asking for the next. What happens to
    the source is said through `say`.
    """

    #: pcap's number of what frames start with
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
        """Refills the batch; how many packets there are."""

    @abstractmethod
    def _follow(self) -> None:
        """Looks after the source, between batches; may stop()."""

    @abstractmethod
    def _detach(self) -> None:
        """No more packets come but those that can be polled already."""

    @abstractmethod
    def counters(self) -> Counters: ...

    @abstractmethod
    def close(self) -> None:
        """Ends the capture; may be called again."""

    @property
    @abstractmethod
    def modes(self) -> str:
        """How it captures, for people."""

    @property
    def outlives_kill(self) -> bool:
        """Whether being killed would leave something behind."""
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
