# SPDX-License-Identifier: BSD-2-Clause
"""Shows in one line of a terminal what a command waits for, until it has something to show."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Progress"]

_TICK_S = 1.0


class Progress:
    """Writes to standard error, and only if that is a terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_shown = False
        self._ended = threading.Event()

    def tell(self, text: str) -> None:
        """Shows the text instead of what was told before."""
        self.end()
        self._write(text)

    def clear(self) -> None:
        """Takes the line away; what is waited for has come."""
        self.end()
        with self._lock:
            if self._is_shown:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
                self._is_shown = False

    def end(self) -> None:
        """Ends what `waiting` began; the line stays until something else is told."""
        self._ended.set()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows the text and the seconds that have passed, from the first second on, until
        something else is told.
        """
        self._ended.clear()
        thread = threading.Thread(target=self._count, args=(text,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.end()
            thread.join()
            self.clear()

    def _count(self, text: str) -> None:
        began_s = time.monotonic()
        while not self._ended.wait(_TICK_S):
            self._write(f"{text} … {time.monotonic() - began_s:.0f} s", is_tick=True)

    def _write(self, text: str, *, is_tick: bool = False) -> None:
        with self._lock:
            if is_tick and self._ended.is_set():
                return  # Something else is shown by now.
            if sys.stderr.isatty():
                print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
                self._is_shown = True
