"""One lock around all bookkeeping of memory, which finalizers may not wait for."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable


class Guard:
    """A lock that its holder may take again, with work left for whoever holds it.

    The garbage collector runs finalizers at any moment, also in the midst of a change that the same
    thread is making under the lock. They leave their work with later().
    """

    def __init__(self) -> None:
        self._left: deque[Callable[[], None]] = deque()
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # Who held it in the parent does not exist in the child.
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
        """Has it done under the lock: now, or by who holds it."""
        self._left.append(work)
        self._catch_up()

    def _catch_up(self) -> None:
        # Also what was left after the holder had looked, and before it let go.
        while self._left and self._lock.acquire(blocking=False):
            try:
                if self._depth:  # this very thread is in the midst of something
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
