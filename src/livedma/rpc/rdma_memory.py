"""A connection's DMA memory: a window of its own, and two pools that map parts of it.

Receives and replies have small buffers, data has larger ones. What a pool has is mapped into the
window; extending maps more buffers for data, shrinking unmaps some as they become free.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

from livedma.errors import LivedmaError, NoRoomError
from livedma.memory import Pool, Window
from livedma.rdma import ProtectionDomain

__all__ = ["ConnectionMemory"]

_SHARD_BUFFERS = 16  # for data: mapped and unmapped together


class ConnectionMemory:
    """window_bytes of addresses, mapped_bytes of memory to begin with, for so many credits.

    A context manager. NoRoomError: that cannot be had.
    """

    def __init__(
        self,
        pd: ProtectionDomain,
        *,
        window_bytes: int,
        mapped_bytes: int,
        inline_bytes: int,
        buffer_bytes: int,
        credits_begin: int,
        credits_max: int,
    ) -> None:
        self._credits_max = credits_max
        self._buffer_bytes = buffer_bytes
        self._changing = threading.Lock()
        with ExitStack() as stack:
            self.window: Window = stack.enter_context(pd.window(window_bytes))
            source = self.window.mapper()
            self.receive_pool = stack.enter_context(
                Pool(source, inline_bytes, minimum=2 * credits_begin, maximum=2 * credits_max)
            )
            self._buffers = max(1, (mapped_bytes - self.window.linked) // buffer_bytes)
            self.data_pool = stack.enter_context(
                Pool(
                    source,
                    buffer_bytes,
                    _SHARD_BUFFERS * buffer_bytes,
                    minimum=self._buffers,
                    maximum=self._buffers,
                )
            )
            self._stack = stack.pop_all()

    def make_ready_for(self, credits_wanted: int) -> None:
        """Memory for so many Receives and their replies. NoRoomError."""
        with self._changing:
            self.receive_pool.set_bounds(2 * credits_wanted, 2 * self._credits_max)

    @property
    def buffers(self) -> int:
        """For data: how many there should be. After a shrink, more may be left for a while."""
        return self._buffers

    def extend(self, length: int) -> int:
        """Maps so many bytes more for data, in whole buffers; how many. NoRoomError: nothing."""
        more = -(-length // self._buffer_bytes)
        with self._changing:
            room = self.window.size - self.window.linked
            if more * self._buffer_bytes > room:
                raise NoRoomError(
                    f"the window has {room} bytes that are not mapped: "
                    f"extend by less, or serve with a larger --window"
                )
            try:
                self._set_buffers(self._buffers + more)
            except LivedmaError:
                self._set_buffers(self._buffers)
                raise
            self._buffers += more
        return more * self._buffer_bytes

    def shrink(self, length: int) -> int:
        """Unmaps so many bytes, in whole buffers and as these become free; how many it will be."""
        with self._changing:
            less = min(-(-length // self._buffer_bytes), self._buffers - 1)
            self._set_buffers(self._buffers - less)
            self._buffers -= less
        return less * self._buffer_bytes

    def _set_buffers(self, count: int) -> None:
        self.data_pool.set_bounds(count, count)

    def close(self) -> None:
        """Nobody may use it any more."""
        self._stack.close()

    def __enter__(self) -> ConnectionMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
