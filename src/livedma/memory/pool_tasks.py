# SPDX-License-Identifier: BSD-2-Clause
"""Tasks wait for buffers by one descriptor for each event loop, watched while a task waits."""

from __future__ import annotations

import asyncio
import weakref

from livedma._native import pool as native

_inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopInbox]
_inboxes = weakref.WeakKeyDictionary()


class LoopInbox(native.Inbox):
    """Wakes the tasks of one loop. The futures that they wait for are the waiters' tokens."""

    def __init__(self) -> None:
        self._is_watched = False

    def wait(self, pool: native.Pool, control: bool) -> native.Waiter:
        """Returns a waiter. Its token is a future that is done when the wait is over."""
        loop = asyncio.get_running_loop()
        waiter = native.Waiter(pool, control, self, loop.create_future())
        if waiter.is_over:  # there is no need to wait
            waiter.token.set_result(None)
        elif not self._is_watched:
            loop.add_reader(self.fileno(), self._wake)
            self._is_watched = True
        return waiter

    def rest(self) -> None:
        """Stops watching if no task waits."""
        if self._is_watched and not len(self):
            asyncio.get_running_loop().remove_reader(self.fileno())
            self._is_watched = False

    def _wake(self) -> None:
        for future in self.read():
            if not future.done():
                future.set_result(None)


def inbox() -> LoopInbox:
    """Returns the inbox of the running loop."""
    loop = asyncio.get_running_loop()
    found = _inboxes.get(loop)
    if found is None:
        found = _inboxes[loop] = LoopInbox()
    return found
