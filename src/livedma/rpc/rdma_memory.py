# SPDX-License-Identifier: BSD-2-Clause
"""Holds a connection's DMA memory: a window of its own, and two pools that map parts of it.

Receives and replies use small buffers, data uses larger ones. A pool's buffers are mapped into the
window; extending maps more buffers for data, shrinking unmaps some as they become free.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from livedma._native.pool import ALIGNMENT, SHARD_BUFFERS_MAX
from livedma.errors import LivedmaError, NoRoomError
from livedma.memory import Pool, Window
from livedma.memory.backing import PAGE
from livedma.memory.pool import SHARD_SIZE
from livedma.memory.rounding import up
from livedma.rdma import ProtectionDomain

__all__ = [
    "LATE_REPLIES",
    "ConnectionMemory",
    "least_bytes",
    "least_data_bytes",
    "receives_bytes",
]

_SHARD_BUFFERS = 16  # buffers for data that are mapped and unmapped together
_SHARD_LEAST = 64 << 10  # bytes: a shard takes whole pages, and a smaller one takes as long to map
_SHARDS_MOST = 256  # at the connection's start
_STEP_SHARDS = 16  # shards mapped between two calls of `go_on`
LATE_REPLIES = 16  #: replies that the peer has not acknowledged, though it sent its next calls


def receives_bytes(count: int, inline_bytes: int) -> int:
    """Returns the bytes that so many buffers for Receives and replies take: shards and pages are
    whole.
    """
    stride = up(inline_bytes, ALIGNMENT)
    each = max(SHARD_SIZE // stride, 1)
    shards, rest = divmod(count, each)
    return shards * up(max(SHARD_SIZE, each * stride), PAGE) + up(rest * stride, PAGE)


def least_data_bytes(buffer_bytes: int, reserve: int) -> int:
    """Returns the bytes of the fewest buffers for data: one, and the reserve."""
    return up((1 + reserve) * up(buffer_bytes, ALIGNMENT), PAGE)


def least_bytes(inline_bytes: int, buffer_bytes: int, credits_begin: int, reserve: int) -> int:
    """Returns the bytes that a connection maps at least, even if fewer are asked for: its Receives
    and their replies, the buffers kept back for control traffic, and one for data.
    """
    receives = receives_bytes(2 * credits_begin, inline_bytes)
    return receives + least_data_bytes(buffer_bytes, reserve)


class ConnectionMemory:
    """Owns a connection's window and pools. It is a context manager. Raises NoRoomError if there is
    no memory for it.

    window_bytes: of addresses. mapped_bytes: of memory at the start. credits_begin: at the start.
    reserve: buffers that data leaves for control traffic: long messages of calls and replies.
    go_on: is called now and then while memory is mapped; an exception ends the mapping.
    admitting: so many more bytes are mapped in it, later; it raises BudgetError if fewer are left.
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
        reserve: int,
        go_on: Callable[[], None] = lambda: None,
        admitting: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self.reserve = reserve
        self._admitting = admitting
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
            stride = up(buffer_bytes, ALIGNMENT)
            left = mapped_bytes - self.window.linked
            shard_buffers = _shard_buffers(left // stride, stride)
            whole = max(_buffers_in(left, stride, shard_buffers), 1 + reserve)
            self._buffers = whole - reserve
            self.first_buffers = self._buffers  #: besides the reserve
            self.data_pool = stack.enter_context(
                Pool(
                    source,
                    buffer_bytes,
                    shard_buffers * stride,
                    reserve=reserve,
                    maximum=min(whole, shard_buffers),
                    short_shards=True,
                )
            )
            self._map_buffers(shard_buffers * _STEP_SHARDS, go_on)
            self.first_bytes = self.window.linked  #: mapped at the start
            self._stack = stack.pop_all()

    def _map_buffers(self, step: int, go_on: Callable[[], None]) -> None:
        """Maps `step` buffers at a time, in whole shards: a window may have room for a million."""
        whole = self._buffers + self.reserve
        for count in (*range(step, whole, step), whole):
            go_on()
            self.data_pool.set_bounds(count, count)

    def make_ready_for(self, credits_wanted: int) -> None:
        """Maps memory for so many Receives and replies. Raises NoRoomError or BudgetError with
        nothing changed.
        """
        with self._admitting(self.bytes_for_credits(credits_wanted)), self._changing:
            self._make_ready_for(credits_wanted)

    def _make_ready_for(self, credits_wanted: int) -> None:
        try:
            self._set_receives(credits_wanted)
        except LivedmaError:
            self._set_receives(self._credits)
            raise
        self._credits = credits_wanted

    def _set_receives(self, credits_wanted: int) -> None:
        pool, count, leaving = self.receive_pool, 2 * credits_wanted, 0
        if credits_wanted < self._credits:
            # Calls and replies beyond the credits keep their buffers; the others need theirs, too.
            leaving = sum(pool.counts()["taken"])
        else:
            pool.set_bounds(count, count)  # else its last shard would be larger than needed
        pool.set_bounds(count, count + leaving + LATE_REPLIES)

    @property
    def buffers(self) -> int:
        """Counts the buffers for data that there should be, besides the reserve. After a shrink,
        more are left for a while.
        """
        return self._buffers

    @property
    def kept_back_bytes(self) -> int:
        """Counts the bytes that are mapped neither for data nor for credits."""
        return self.reserve * self._buffer_bytes

    def taken(self) -> tuple[int, int]:
        """Returns how many buffers are taken that data could have, and how many are waited for."""
        counts = self.data_pool.counts()
        data, control = counts["taken"]
        return data + max(control - self.reserve, 0), sum(counts["waiting"])

    @property
    def room(self) -> int:
        """Counts the bytes that `extend` can map now, as the window has room. Receives for more
        credits take from the same; what their pool may take by itself is left out.
        """
        # More than wanted, after a shrink.
        there: int = self.data_pool.counts()["buffers"] - self.reserve
        free = self._source.room(self.data_pool.stride) - self._spoken_for()
        return max(there - self._buffers + free, 0) * self._buffer_bytes

    def _spoken_for(self) -> int:
        """Returns how many data buffers' place the pool of Receives may take by itself."""
        receives = self.receive_pool
        most = 2 * self._credits + LATE_REPLIES
        more_bytes: int = max(most - receives.counts()["buffers"], 0) * receives.stride
        return -(-more_bytes // self.data_pool.stride)

    def bytes_to_extend(self, length: int) -> int:
        """Returns the most bytes that `extend` maps for `length`: whole buffers, in whole pages."""
        return _shard_bytes(self.data_pool, -(-length // self._buffer_bytes))

    def bytes_for_credits(self, wanted: int) -> int:
        """Returns the bytes that `make_ready_for` maps for Receives and replies: 0 for fewer
        credits, whose memory goes back when calls have ended.
        """
        return _shard_bytes(self.receive_pool, 2 * max(wanted - self._credits, 0))

    def extend(self, length: int, credits_wanted: int = 0) -> int:
        """Maps `length` bytes more for data, in whole buffers, after the memory that more credits
        need. Returns the bytes for data: fewer if the credits leave no room for all of them.

        Raises NoRoomError, BudgetError or the like with nothing changed.
        """
        before = self._credits
        credits_wanted = max(credits_wanted, before)
        most_bytes = self.bytes_to_extend(length) + self.bytes_for_credits(credits_wanted)
        with self._admitting(most_bytes), self._changing:
            self._make_ready_for(credits_wanted)  # gives back what lowered credits still had
            try:
                if credits_wanted > before:
                    length = min(length, self.room or 1)
                return self._map_data(length)
            except BaseException:
                self._make_ready_for(before)
                raise

    def _map_data(self, length: int) -> int:
        more, room = -(-length // self._buffer_bytes), self.room
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
        """Unmaps so many bytes, in whole buffers as they become free; returns how many."""
        with self._changing:
            less = min(-(-length // self._buffer_bytes), self._buffers - 1)
            self._set_buffers(self._buffers - less)
            self._buffers -= less
        return less * self._buffer_bytes

    def _set_buffers(self, count: int) -> None:
        count += self.reserve
        self.data_pool.set_bounds(count, count)

    def close(self) -> None:
        """Frees everything, which nothing may use any more."""
        self._stack.close()

    def __enter__(self) -> ConnectionMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shard_buffers(count: int, stride: int) -> int:
    """Returns the buffers of a shard, where a connection begins with `count` of them. The more
    shards a window has, the longer each of them takes to map: so there are some hundreds at most.
    """
    least = max(_SHARD_BUFFERS, _SHARD_LEAST // stride, -(-count // _SHARDS_MOST))
    return min(up(least, max(PAGE // stride, 1)), SHARD_BUFFERS_MAX)


def _buffers_in(size: int, stride: int, shard_buffers: int) -> int:
    """Returns how many buffers fit in whole shards, and a short one of whole pages."""
    shards, rest = divmod(size, up(shard_buffers * stride, PAGE))
    return shards * shard_buffers + rest // PAGE * PAGE // stride


def _shard_bytes(pool: Pool, buffers: int) -> int:
    """Returns the bytes of so many more buffers: whole shards, and a short one of whole pages."""
    shards, rest = divmod(buffers, pool.shard_buffers)
    return shards * pool.shard_size + up(rest * pool.stride, PAGE)
