"""What a server says while it runs, all in one form; mostly a line each on standard error."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from livedma.cli.log_forms import JOURNAL, JournalHandler, JsonFormatter

__all__ = ["say", "set_level", "start"]

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


def start(level: str, form: str = "text", *, journal: Path = JOURNAL) -> None:
    """Has all of livedma heard from now on: as text, json or journal, which listens there."""
    if form == "journal":
        _ALL.addHandler(JournalHandler(journal))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if form == "json" else _Line())
        _ALL.addHandler(handler)
    _ALL.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """error, warning, info or debug."""
    _ALL.setLevel(level.upper())


def say(text: str) -> None:
    """On standard error, whatever the level and form, but as an object where all else is one."""
    for handler in _ALL.handlers:
        if isinstance(handler.formatter, JsonFormatter):
            record = logging.LogRecord(_ALL.name, logging.INFO, "", 0, text.strip(), None, None)
            text = handler.formatter.format(record)
    print(text, file=sys.stderr, flush=True)
