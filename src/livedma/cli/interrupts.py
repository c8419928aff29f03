# SPDX-License-Identifier: BSD-2-Clause
"""Ends a measurement in order on SIGINT and SIGTERM: it shows its figures and leaves nothing
behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Catches the signals that end a measurement. caught: the first that came, or None."""

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None

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
        once."""
        loop = asyncio.get_running_loop()

        def catch(number: signal.Signals) -> None:
            self.caught = number
            for one in _SIGNALS:
                loop.remove_signal_handler(one)
                signal.signal(one, signal.SIG_DFL)
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
