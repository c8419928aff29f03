# SPDX-License-Identifier: BSD-2-Clause
"""Receives the signals to a server, and says what they want of it."""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal, Self

from livedma.cli.interrupts import SAME_S

__all__ = ["Signals"]

Meaning = Literal["end", "reload"]


class Signals:
    """Queues what signals want: SIGTERM and SIGINT the server's end, SIGHUP what `hangup` says. A
    context manager.

    A thread of its own receives the signals. At the second one that wants the end, it calls `last`
    and ends the process, whatever the main thread waits for. A second one that comes at once counts
    as the first.
    hangup: to a server without a file, SIGHUP says that its terminal is gone.
    """

    def __init__(self, *, hangup: Meaning, last: Callable[[], None] = lambda: None) -> None:
        self._meaning_of: dict[int, Meaning] = {
            signal.SIGTERM: "end",
            signal.SIGINT: "end",
            signal.SIGHUP: hangup,
        }
        self._last = last
        self._meanings: queue.SimpleQueue[Meaning] = queue.SimpleQueue()
        self._ends_s: float | None = None  # when the first signal came that wants the end

    def next(self, timeout_s: float | None = None) -> Meaning | None:
        """Waits for the next signal, and returns what it means. None: none came in `timeout_s`."""
        try:
            return self._meanings.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def end_within(self, seconds: float) -> None:
        """Ends the process then, unless it has ended before: what it waits for may never come."""
        text = f"livedma: it did not end in {seconds:g} s, so it ends now"
        timer = threading.Timer(seconds, self._end, (1, text))
        timer.daemon = True
        timer.start()

    def __enter__(self) -> Self:
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        self._wakeup_fd = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _ignore) for number in self._meaning_of}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_fd)
        self._mouth.close()

    def _listen(self) -> None:
        with self._ear:
            while numbers := self._ear.recv(64):
                for number in numbers:
                    self._heard(number)

    def _heard(self, number: int) -> None:
        meaning = self._meaning_of.get(number)
        if meaning is None:
            return
        if meaning == "end":
            now_s = time.monotonic()
            if self._ends_s is None:
                self._ends_s = now_s
            elif now_s - self._ends_s < SAME_S:
                return
            else:
                name = signal.Signals(number).name
                self._end(128 + number, f"livedma: {name} again: it ends now")
        self._meanings.put(meaning)

    def _end(self, status: int, text: str) -> None:
        try:
            self._last()
            print(text, file=sys.stderr, flush=True)
        finally:
            os._exit(status)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Does nothing: Python writes the number to the wakeup descriptor, where `_listen` reads it."""
