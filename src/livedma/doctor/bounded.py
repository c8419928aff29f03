# SPDX-License-Identifier: BSD-2-Clause
"""Runs one check at a time, so that none lasts for ever or hides the others."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from livedma.doctor.finding import Finding

__all__ = ["look"]


class _TooLong(Exception):
    """Reports that the time is over."""


def look(name: str, at: Callable[[], Sequence[Finding]], most_s: float) -> Sequence[Finding]:
    """Returns what a look finds. An error, or taking longer than `most_s`, is a finding, too.

    Only the main thread can be interrupted; another thread waits.
    """
    try:
        with _limited(most_s):
            return at()
    except _TooLong:
        text = f"it did not answer within {most_s:g} s"
    except Exception as error:  # an odd system may raise anything here
        text = f"it could not be looked at: {type(error).__name__}: {error}"
    return [Finding(name, "unknown", text)]


@contextmanager
def _limited(most_s: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, most_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(*_: object) -> None:
    raise _TooLong
