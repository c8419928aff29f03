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
_LATE_REPLIES = 16  # that the peer has not acknowledged yet, though it has sent its next calls


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
    ) -> None:
        self._buffer_bytes = buffer_bytes
        self._changing = threading.Lock()
        with ExitStack() as stack:
            self.window: Window = stack.enter_context(pd.window(window_bytes))
            self._source = source = self.window.mapper()
            self._credits = credits_begin
            self.receive_pool = stack.enter_context(
                Pool(source, inline_bytes, maximum=2 * credits_begin, short_shards=True)
            )
            self._set_receives(credits_begin)
            self._buffers = max(1, (mapped_bytes - self.window.linked) // buffer_bytes)
            self.data_pool = stack.enter_context(
                Pool(
                    source,
                    buffer_bytes,
                    _SHARD_BUFFERS * buffer_bytes,
                    minimum=self._buffers,
                    maximum=self._buffers,
                    short_shards=True,
                )
            )
            self.first_bytes = self.window.linked  #: that were mapped to begin with
            self._stack = stack.pop_all()

    def make_ready_for(self, credits_wanted: int) -> None:
        """Memory for so many Receives and their replies. NoRoomError: all is as before."""
        with self._changing:
            try:
                self._set_receives(credits_wanted)
            except LivedmaError:
                self._set_receives(self._credits)
                raise
            self._credits = credits_wanted

    def _set_receives(self, credits_wanted: int) -> None:
        pool, count, leaving = self.receive_pool, 2 * credits_wanted, 0
        if credits_wanted < self._credits:
            # Calls and replies beyond them end in what they have, and others need theirs.
            leaving = sum(pool.counts()["taken"])
        else:
            pool.set_bounds(count, count)  # or its last shard would have more than is needed
        pool.set_bounds(count, count + leaving + _LATE_REPLIES)

    @property
    def buffers(self) -> int:
        """For data: how many there should be. After a shrink, more may be left for a while."""
        return self._buffers

    @property
    def room(self) -> int:
        """Bytes that `extend` can map now, as far as the window goes. Receives for more credits
        take of the same; what they may take without asking is not in it.
        """
        there: int = self.data_pool.counts()["buffers"]  # more than wanted, after a shrink
        free = self._source.room(self.data_pool.stride) - self._spoken_for()
        return max(there - self._buffers + free, 0) * self._buffer_bytes

    def _spoken_for(self) -> int:
        """Data buffers in whose place the pool of Receives may grow by itself."""
        receives = self.receive_pool
        most = 2 * self._credits + _LATE_REPLIES
        more_bytes: int = max(most - receives.counts()["buffers"], 0) * receives.stride
        return -(-more_bytes // self.data_pool.stride)

    def extend(self, length: int) -> int:
        """Maps so many bytes more for data, in whole buffers; how many. NoRoomError: nothing."""
        more = -(-length // self._buffer_bytes)
        with self._changing:
            self._set_receives(self._credits)  # credits that were lowered are by now
            room = self.room
            if more * self._buffer_bytes > room:
                raise NoRoomError(
                    f"the window has room for {room} bytes more: "
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
