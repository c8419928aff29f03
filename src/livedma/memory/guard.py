# SPDX-License-Identifier: BSD-2-Clause
"""One lock guards all bookkeeping of memory. Finalizers must not wait for it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable


class Guard:
    """Locks reentrantly, and queues work for the thread that holds the lock.

    The garbage collector runs finalizers at any moment, also in the middle of a change that the
    same thread is making under the lock. So finalizers queue their work with later().
    """

    def __init__(self) -> None:
        self._left: deque[Callable[[], None]] = deque()
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # The thread that held the lock in the parent does not exist in the child.
        self._lock = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth == 1:
            self._work()
        self._depth -= 1
        self._lock.release()
        self._catch_up()

    def later(self, work: Callable[[], None]) -> None:
        """Has the work done under the lock: now, or by the thread that holds the lock."""
        self._left.append(work)
        self._catch_up()

    def _catch_up(self) -> None:
        # Catches also what was queued after the holder had looked, and before it released the lock.
        while self._left and self._lock.acquire(blocking=False):
            try:
                if self._depth:  # this thread is in the middle of a change
                    return
                self._depth = 1
                self._work()
                self._depth = 0
            finally:
                self._lock.release()

    def _work(self) -> None:
        while self._left:
            self._left.popleft()()


guard = Guard()
