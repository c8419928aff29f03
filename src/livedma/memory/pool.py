# SPDX-License-Identifier: BSD-2-Clause
"""Pools lend equal buffers, cut from shards that come from a source of memory and go back to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Self

from livedma._native import pool as native
from livedma._native.pool import Buffer, PoolClosed
from livedma.errors import BudgetError, InUseError, LimitError, NoRoomError
from livedma.memory.backing import PAGE
from livedma.memory.lease import Lease, Source
from livedma.memory.pool_stats import ClassStats, PoolStats, Waits
from livedma.memory.pool_tasks import inbox
from livedma.memory.rounding import up

__all__ = ["SHARD_SIZE", "Buffer", "Pool", "PoolClosed"]

SHARD_SIZE = 65536
_RETRY_S = 0.05  # until a waiter asks the source again
_KEEP_IDLE = 1  # shards, so that taking and returning one buffer does not map and unmap each time


class Pool(native.Pool):
    """Lends buffers of buffer_size bytes, which share no 64-byte line, from shards of shard_size
    bytes.

    A shard holds as many buffers as fit, at least one. The pool adds a shard when no buffer is free
    and the source has room, and gives an idle shard back when another one is idle, too. Three
    numbers of buffers bound it: `reserve` buffers are left for control, whatever data takes;
    `minimum` buffers are there from the start and stay; there are never more than `maximum`. With
    short_shards, a shard has fewer buffers where the source has no piece as long as a whole one.
    Any thread may make any call.

    close() may be called at any time. Buffers that are still taken are gone then, so the program
    first has to end what it has posted with them.
    """

    def __init__(
        self,
        source: Source,
        buffer_size: int,
        shard_size: int = SHARD_SIZE,
        reserve: int = 0,
        minimum: int = 0,
        maximum: int | None = None,
        *,
        short_shards: bool = False,
    ) -> None:
        """Raises NoRoomError if the source has too little for minimum and reserve."""
        buffers = _shard_buffers(buffer_size, shard_size)
        _check_bounds(reserve, minimum, maximum)
        super().__init__(buffer_size, buffers, reserve, minimum, maximum or 0)
        self._source = source
        self._has_short_shards = short_shards
        self.shard_size = up(max(shard_size, buffers * self.stride), PAGE)
        self._growing = threading.Lock()
        self._refused_s = -_RETRY_S
        self._refusal: BudgetError | None = None  # of the last try, if that was why
        self._leaving: deque[Lease] = deque()  # no part of it, but not given back either
        weakref.finalize(self, _release, self.leases, self._leaving).atexit = False
        try:
            self._fill()
        except BaseException:
            self.close()
            raise

    def _fill(self) -> None:
        while self.is_short():
            # A waiter may have made it grow, too, so it may have what it needs by now.
            if not self._grow() and self.is_short():
                if self._refusal is not None:
                    raise self._refusal
                raise NoRoomError(
                    f"the source has no room for the buffers of {self.buffer_size} bytes that the "
                    "pool has to have: its minimum and its reserve"
                )

    def set_bounds(self, minimum: int, maximum: int | None = None) -> None:
        """Changes the bounds. When it returns, the minimum is there.

        The pool no longer hands out buffers beyond a lower maximum. Their shards go back when they
        become idle, those that are idle at once. Raises NoRoomError if the source has too little
        for the minimum; then the pool keeps what the source had.
        """
        super().set_bounds(minimum, maximum or 0)
        self._fill()
        self.tend()

    def try_take(self, control: bool = False) -> Buffer | None:
        """Returns a buffer if one is free or the source has room, else None."""
        buffer = self.take_free(control)
        while buffer is None:
            with self._growing:
                # Another thread may have grown the pool, or waiters may get the new buffers.
                buffer = self.take_free(control)
                if buffer is None and not self._add_shard():
                    return None
        return buffer

    def take(self, control: bool = False, timeout: float | None = None) -> Buffer:
        """Returns a buffer, and waits for its turn. Raises TimeoutError after `timeout` seconds."""
        buffer = self.try_take(control)
        if buffer is not None:
            return buffer
        waiter = native.Waiter(self, control)
        until = _deadline(timeout)
        try:
            while not waiter.wait(_slice(until)) and time.monotonic() < until:
                self._retry()
        except BaseException:
            _abandon(waiter)
            raise
        return _claim(waiter, timeout)

    async def take_async(self, control: bool = False, timeout: float | None = None) -> Buffer:
        """Does the same as `take`, for asyncio."""
        buffer = self.try_take(control)
        if buffer is not None:
            return buffer
        until, tasks = _deadline(timeout), inbox()
        waiter = tasks.wait(self, control)
        try:
            while not waiter.token.done() and time.monotonic() < until:
                await asyncio.wait({waiter.token}, timeout=_slice(until))
                if not waiter.token.done():
                    self._retry()
        except BaseException:
            _abandon(waiter)
            raise
        finally:
            tasks.rest()
        return _claim(waiter, timeout)

    def tend(self) -> None:
        """Gives back idle shards, and adds shards for waiters.

        The pool does so by itself when Python takes and returns buffers. A caller that has given
        the source more room calls it so that waiters need not wait for the next try.
        """
        if self.closed:
            return
        self.answer()
        self._give_back(_KEEP_IDLE)
        while any(self.counts()["waiting"]) and self._grow():
            pass

    def trim(self) -> int:
        """Gives back all idle shards that minimum and reserve do not need. Returns how many."""
        return self._give_back(0)

    def close(self) -> None:
        """Ends the pool in any state: waiters get PoolClosed, and all shards go back to the source.

        Raises InUseError or BufferError if the source could not take all of them. A further call
        tries those again, and has no effect if there are none.
        """
        self._leaving.extend(self.shut())
        self._release_leaving(is_last=True)

    @property
    def stats(self) -> PoolStats:
        counts = self.counts()
        data, control = (
            ClassStats(
                waits=_waits(*self.waits(bool(i))),
                **{name: counts[name][i] for name in _BY_CLASS},
            )
            for i in (0, 1)
        )
        plain = {name: value for name, value in counts.items() if name not in _BY_CLASS}
        mapped = sum(lease.length for lease in list(self.leases))
        return PoolStats(mapped_bytes=mapped, data=data, control=control, **plain)

    def _grow(self) -> bool:
        with self._growing:
            return self._add_shard()

    def _add_shard(self) -> bool:
        """Adds a shard. Returns False if the pool may not grow or the source has no room."""
        buffers = self.room()
        lease = None
        while buffers and lease is None:
            lease = self._take_shard(buffers)
            if lease is None:
                buffers = buffers // 2 if self._has_short_shards else 0
        if lease is None:
            return False
        try:
            self.add_shard(lease, buffers)
        except BaseException:
            lease.release()
            raise
        return True

    def _take_shard(self, buffers: int) -> Lease | None:
        whole = buffers == self.shard_buffers
        self._refusal = None
        try:
            return self._source.take(self.shard_size if whole else up(buffers * self.stride, PAGE))
        except (NoRoomError, BudgetError, LimitError) as error:
            self._refused_s = time.monotonic()
            self._refusal = error if isinstance(error, BudgetError) else None
            return None

    def _retry(self) -> None:
        """Asks the source again, at most once in _RETRY_S for all waiters together."""
        if time.monotonic() - self._refused_s >= _RETRY_S and not self.closed:
            self.tend()

    def _give_back(self, keep_idle: int) -> int:
        count = 0
        while (lease := self.retire_shard(keep_idle)) is not None:
            self._leaving.append(lease)
            count += 1
        self._release_leaving()
        return count

    def _release_leaving(self, is_last: bool = False) -> None:
        """Gives the leaving shards back to the source. A shard that is still in use, although its
        buffers were returned, is tried again later.
        """
        failed: BaseException | None = None
        for _ in range(len(self._leaving)):
            try:
                lease = self._leaving.popleft()
            except IndexError:  # another thread does the same
                break
            try:
                lease.release()
            except (InUseError, BufferError) as error:
                self._leaving.append(lease)
                failed = error
        if failed is not None and is_last:
            raise failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BY_CLASS = ("taken", "waiting", "oldest_ns", "takes", "gave_up")


def _waits(count: int, sum_ns: int, max_ns: int, buckets: list[tuple[int, int]]) -> Waits:
    return Waits(count, sum_ns, max_ns, tuple(buckets))


def _shard_buffers(buffer_size: int, shard_size: int) -> int:
    if not 0 < buffer_size < 1 << 32:
        raise ValueError("a buffer has at least one byte and less than 4 GiB")
    if shard_size <= 0:
        raise ValueError("a shard has at least one byte")
    stride = up(buffer_size, native.ALIGNMENT)
    buffers = max(shard_size // stride, 1)
    if buffers > native.SHARD_BUFFERS_MAX:
        raise ValueError(f"a shard has at most {native.SHARD_BUFFERS_MAX} buffers, not {buffers}")
    return buffers


def _check_bounds(reserve: int, minimum: int, maximum: int | None) -> None:
    if reserve < 0 or minimum < 0:
        raise ValueError("reserve and minimum are numbers of buffers")
    most = native.BUFFERS_MAX if maximum is None else maximum
    if not max(reserve, minimum, 1) <= most <= native.BUFFERS_MAX:
        raise ValueError(
            f"maximum is at least 1, reserve and minimum, and at most {native.BUFFERS_MAX}"
        )


def _release(*groups: Iterable[Lease]) -> None:
    for lease in itertools.chain(*groups):
        lease.release()


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


def _slice(until: float) -> float:
    return max(min(until - time.monotonic(), _RETRY_S), 0.0)


def _claim(waiter: native.Waiter, timeout: float | None) -> Buffer:
    buffer = waiter.claim()
    if buffer is None:
        raise TimeoutError(f"no buffer came free within {timeout} s")
    return buffer


def _abandon(waiter: native.Waiter) -> None:
    with contextlib.suppress(PoolClosed):
        if (late := waiter.claim()) is not None:
            late.release()
