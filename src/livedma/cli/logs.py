"""What a server says while it runs: a line each on standard error, all in one form."""

from __future__ import annotations

import logging

__all__ = ["set_level", "start"]

_ALL = logging.getLogger("livedma")
_DECISIONS = "livedma.decisions"


class _Line(logging.Formatter):
    """`12:34:56.789 done      connection 1: ...`: what kind of thing happened, and what."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        if record.name != _DECISIONS:  # whose messages begin with their kind
            record.message = f"{record.levelname.lower():9} {record.message}"
        return super().formatMessage(record)


def start(level: str) -> None:
    """Has all of livedma heard from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    _ALL.addHandler(handler)
    _ALL.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """error, warning, info or debug."""
    _ALL.setLevel(level.upper())
