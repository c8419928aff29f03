# SPDX-License-Identifier: BSD-2-Clause
"""Ends a measurement in order on SIGINT and SIGTERM: it shows its figures and leaves nothing
behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["SAME_S", "Interrupts"]

#: A second signal so soon counts as the first: timeout(1) and others send a signal to the process
#: and to its group.
SAME_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Catches the signals that end a measurement. caught: the first that came, or None."""

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._caught_s = 0.0

    @property
    def status(self) -> int:
        """Is the exit status by which shells report a process that the signal ended."""
        return 0 if self.caught is None else 128 + self.caught

    @property
    def words(self) -> str:
        return "" if self.caught is None else f"interrupted by {self.caught.name}"

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """Lets the first signal within the block call `stop`; the second one ends the process at
        once, unless it comes with the first."""
        loop = asyncio.get_running_loop()

        def catch(number: signal.Signals) -> None:
            if self.caught is None:
                self.caught, self._caught_s = number, time.monotonic()
                self._await_another()
                stop()

        try:
            for one in _SIGNALS:
                loop.add_signal_handler(one, catch, one)
        except (ValueError, RuntimeError):  # Only the main thread gets signals.
            yield
            return
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)
            if self.caught is not None:
                self._await_another()

    def _await_another(self) -> None:
        """Handles signals without the loop, which may be busy or over."""
        for one in _SIGNALS:
            signal.signal(one, self._again)

    def _again(self, number: int, _: FrameType | None) -> None:
        if time.monotonic() - self._caught_s >= SAME_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
