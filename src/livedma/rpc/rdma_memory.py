# SPDX-License-Identifier: BSD-2-Clause
"""Holds a connection's DMA memory: a window of its own, and two pools that map parts of it.

Receives and replies use small buffers, data uses larger ones. A pool's buffers are mapped into the
window; extending maps more buffers for data, shrinking unmaps some as they become free.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Literal

from livedma._native.pool import ALIGNMENT, SHARD_BUFFERS_MAX
from livedma.errors import LivedmaError, NoRoomError
from livedma.memory import Anonymous, Auto, Backing, Huge, Pool, Window, WindowPins
from livedma.memory.backing import HUGE_PAGE, PAGE
from livedma.memory.pool import SHARD_SIZE
from livedma.memory.rounding import up
from livedma.rdma import ProtectionDomain

__all__ = [
    "LATE_REPLIES",
    "ConnectionMemory",
    "Kind",
    "Pages",
    "least_bytes",
    "least_data_bytes",
    "receives_bytes",
]

_SHARD_BUFFERS = 16  # buffers for data that are mapped and unmapped together
_SHARD_LEAST = 64 << 10  # bytes: a shard takes whole pages, and a smaller one takes as long to map
_SHARDS_MOST = 256  # at the connection's start
_WORTH_HUGE = 64 << 20  # bytes at the start, from which on shards are made for huge pages
_STEP_SHARDS = 16  # shards mapped between two calls of `go_on`
LATE_REPLIES = 16  #: replies that the peer has not acknowledged, though it sent its next calls


Pages = Literal["auto", "4KiB", "2MiB"]
_BACKINGS: dict[Pages, type[Backing]] = {"auto": Auto, "4KiB": Anonymous, "2MiB": Huge}


@dataclass(frozen=True, slots=True)
class Kind:
    """Says what kind of memory connections get. node: where it comes from; None: near the
    interface. pins: keeps it in its place; None: nothing does.
    """

    pages: Pages = "4KiB"
    node: int | None = None
    pins: WindowPins | None = None

    @property
    def granule(self) -> int:
        """Returns the unit in which memory is mapped."""
        return HUGE_PAGE if self.pages == "2MiB" else PAGE


def receives_bytes(count: int, inline_bytes: int, granule: int = PAGE) -> int:
    """Returns the bytes that so many buffers for Receives and replies take: shards and granules are
    whole.
    """
    stride, shard_bytes = up(inline_bytes, ALIGNMENT), max(SHARD_SIZE, granule)
    each = max(shard_bytes // stride, 1)
    shards, rest = divmod(count, each)
    return shards * up(max(shard_bytes, each * stride), granule) + up(rest * stride, granule)


def least_data_bytes(buffer_bytes: int, reserve: int, granule: int = PAGE) -> int:
    """Returns the bytes of the fewest buffers for data: one, and the reserve."""
    return up((1 + reserve) * up(buffer_bytes, ALIGNMENT), granule)


def least_bytes(
    inline_bytes: int, buffer_bytes: int, credits_begin: int, reserve: int, granule: int = PAGE
) -> int:
    """Returns the bytes that a connection maps at least, even if fewer are asked for: its Receives
    and their replies, the buffers kept back for control traffic, and one for data.
    """
    receives = receives_bytes(2 * credits_begin, inline_bytes, granule)
    return receives + least_data_bytes(buffer_bytes, reserve, granule)


class ConnectionMemory:
    """Owns a connection's window and pools. It is a context manager. Raises NoRoomError if there is
    no memory for it.

    window_bytes: of addresses. mapped_bytes: of memory at the start. credits_begin: at the start.
    reserve: buffers that data leaves for control traffic: long messages of calls and replies.
    kind: of memory. tenant: is charged for it.
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
        kind: Kind | None = None,
        tenant: str = "",
        go_on: Callable[[], None] = lambda: None,
        admitting: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        kind = kind or Kind()
        self.reserve = reserve
        self._admitting = admitting
        self._buffer_bytes = buffer_bytes
        self._granule = granule = kind.granule
        # Buffers come and go by so many: of small ones, all that a large granule holds.
        self._receives_each = self._each = 1
        if granule > PAGE:
            self._receives_each = max(granule // up(inline_bytes, ALIGNMENT), 1)
            self._each = max(granule // up(buffer_bytes, ALIGNMENT), 1)
        self._changing = threading.Lock()
        with ExitStack() as stack:
            self.window: Window = stack.enter_context(
                pd.window(
                    window_bytes,
                    granule=granule,
                    backing=_BACKINGS[kind.pages](),
                    node=kind.node,
                    pins=kind.pins,
                    tenant=tenant,
                )
            )
            self._source = source = self.window.mapper()
            self._credits = credits_begin
            self.receive_pool = stack.enter_context(
                Pool(
                    source,
                    inline_bytes,
                    max(SHARD_SIZE, granule),
                    maximum=up(2 * credits_begin, self._receives_each),
                    short_shards=True,
                )
            )
            self._set_receives(credits_begin)
            stride = up(buffer_bytes, ALIGNMENT)
            left = mapped_bytes - self.window.linked
            page = HUGE_PAGE if kind.pages == "auto" and left >= _WORTH_HUGE else granule
            shard_buffers = _shard_buffers(left // stride, stride, page)
            there = _buffers_in(left, stride, shard_buffers, granule)
            whole = up(max(there, 1 + reserve), self._each)
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
        pool, count, leaving = self.receive_pool, self._receives(credits_wanted), 0
        if credits_wanted < self._credits:
            # Calls and replies beyond the credits keep their buffers; the others need theirs, too.
            leaving = sum(pool.counts()["taken"])
        else:
            pool.set_bounds(count, count)  # else its last shard would be larger than needed
        most = 2 * credits_wanted + leaving + LATE_REPLIES
        pool.set_bounds(count, up(most, self._receives_each))

    def _receives(self, credits_wanted: int) -> int:
        """Returns how many buffers there are for Receives and replies of so many credits."""
        return up(2 * credits_wanted, self._receives_each)

    @property
    def why_small_pages(self) -> str:
        """Why it has no pages of 2 MiB, though it should; empty: it has, or need not."""
        backing = self.window.backing
        is_small = self._granule == HUGE_PAGE and backing.kind == "4 KiB pages"
        return backing.reason if is_small else ""

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
        pieces = self._source.room(self._each * self.data_pool.stride)
        free = pieces * self._each - self._spoken_for()
        return max(there - self._buffers + free, 0) * self._buffer_bytes

    def _spoken_for(self) -> int:
        """Returns how many data buffers' place the pool of Receives may take by itself."""
        receives = self.receive_pool
        most = up(2 * self._credits + LATE_REPLIES, self._receives_each)
        more_bytes: int = max(most - receives.counts()["buffers"], 0) * receives.stride
        return up(-(-more_bytes // self.data_pool.stride), self._each)

    def bytes_to_extend(self, length: int) -> int:
        """Returns the most bytes that `extend` maps for `length`: whole buffers, in whole pages."""
        return self._shard_bytes(self.data_pool, self._whole(length))

    def bytes_for_credits(self, wanted: int) -> int:
        """Returns the bytes that `make_ready_for` maps for Receives and replies: 0 for fewer
        credits, whose memory goes back when calls have ended.
        """
        more = self._receives(wanted) - self._receives(self._credits)
        return self._shard_bytes(self.receive_pool, max(more, 0))

    def _whole(self, length: int) -> int:
        """Returns how many buffers come for so many bytes."""
        return up(-(-length // self._buffer_bytes), self._each)

    def _shard_bytes(self, pool: Pool, buffers: int) -> int:
        """Returns the bytes of so many more buffers: whole shards, and a short one of whole
        granules.
        """
        shards, rest = divmod(buffers, pool.shard_buffers)
        return shards * up(pool.shard_size, self._granule) + up(rest * pool.stride, self._granule)

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
        more, room = self._whole(length), self.room
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
            least = max(self._each - self.reserve, 1)
            less = min(self._whole(length), self._buffers - least)
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


def _shard_buffers(count: int, stride: int, page: int) -> int:
    """Returns the buffers of a shard, where a connection begins with `count` of them. The more
    shards a window has, the longer each of them takes to map: so there are some hundreds at most.
    """
    least = max(_SHARD_BUFFERS, _SHARD_LEAST // stride, -(-count // _SHARDS_MOST))
    return min(up(least, max(page // stride, 1)), SHARD_BUFFERS_MAX)


def _buffers_in(size: int, stride: int, shard_buffers: int, granule: int) -> int:
    """Returns how many buffers fit in whole shards, and a short one of whole granules."""
    shards, rest = divmod(size, up(shard_buffers * stride, granule))
    return shards * shard_buffers + rest // granule * granule // stride
