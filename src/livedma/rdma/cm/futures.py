# SPDX-License-Identifier: BSD-2-Clause
"""Hands results and items from one thread to another that waits, blocking and with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from typing import Generic, TypeVar

T = TypeVar("T")


def settle(future: Future[T], result: T | Exception) -> None:
    """Sets the future's result, unless it has one or was cancelled."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


async def outcome(future: Future[T]) -> T:
    """Returns the future's result. A task cancelled while it waits does not cancel the future."""
    done: Future[None] = Future()
    future.add_done_callback(lambda _: settle(done, None))
    await asyncio.wrap_future(done)
    return future.result()


class MailboxClosed(Exception):
    """Reports that the mailbox is closed: no item will come."""


class Mailbox(Generic[T]):
    """Passes items from a thread that puts them in to threads or tasks; each is taken once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[T] = deque()
        self._takers: deque[Future[T]] = deque()
        self._is_closed = False

    def put(self, item: T) -> None:
        with self._lock:
            self._put(item)

    def _put(self, item: T) -> None:
        if self._is_closed:
            return
        while self._takers:
            taker = self._takers.popleft()
            if taker.set_running_or_notify_cancel():
                taker.set_result(item)
                return
        self._items.append(item)

    def close(self) -> None:
        """Drops the items in it, and those that are put in later."""
        with self._lock:
            self._is_closed = True
            self._items.clear()
            takers, self._takers = self._takers, deque()
        for taker in takers:
            if taker.set_running_or_notify_cancel():
                taker.set_exception(MailboxClosed())

    def take(self, timeout: float | None = None) -> T:
        """Takes the next item. Raises TimeoutError, or MailboxClosed."""
        taker = self._take()
        try:
            return taker.result(timeout)
        except BaseException:
            self._give_back(taker)
            raise

    async def take_async(self) -> T:
        taker = self._take()
        try:
            return await asyncio.wrap_future(taker)
        except asyncio.CancelledError:
            self._give_back(taker)
            raise

    def _take(self) -> Future[T]:
        taker: Future[T] = Future()
        with self._lock:
            if self._items:
                taker.set_result(self._items.popleft())
            elif self._is_closed:
                taker.set_exception(MailboxClosed())
            else:
                self._takers.append(taker)
        return taker

    def _give_back(self, taker: Future[T]) -> None:
        """Puts back an item that came for a caller that no longer waits; the next one gets it."""
        with self._lock:
            if taker.cancel() or taker.exception():
                return
            item = taker.result()
            if not self._is_closed:
                self._items.appendleft(item)
