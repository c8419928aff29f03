# SPDX-License-Identifier: BSD-2-Clause
"""Tells of failures of the controller itself, once when they begin and once when they end."""

from __future__ import annotations

from livedma.control.events import Events

__all__ = ["Faults", "described"]

_AGAIN_S = 60.0  # until a failure that lasts is told again


def described(error: BaseException) -> str:
    """Returns the error's text. Those of livedma are sentences; others also need their type."""
    text = str(error)
    module = type(error).__module__
    return text if module.startswith("livedma") else f"{type(error).__name__}: {text}".rstrip(": ")


class Faults:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._lasting: dict[str, tuple[str, float]] = {}

    def failed(self, what: str, reason: str, at_s: float) -> None:
        known, told_s = self._lasting.get(what, ("", 0.0))
        if reason != known or at_s - told_s >= _AGAIN_S:
            self._lasting[what] = (reason, at_s)
            self._events.tell("failed", f"{what}: {reason}", data={"what": what})

    def worked(self, what: str) -> None:
        if self._lasting.pop(what, None) is not None:
            self._events.tell("recovered", f"{what}: works again", data={"what": what})
