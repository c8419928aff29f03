# SPDX-License-Identifier: BSD-2-Clause
"""Logs what a server says while it runs, all in one form; by default as lines on standard error."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from livedma.cli.log_forms import JOURNAL, JournalHandler, JsonFormatter
from livedma.cli.paint import Paint
from livedma.cli.shades import event_color
from livedma.rpc.connection_log import LOGGER

__all__ = ["say", "set_level", "start"]

_ALL = logging.getLogger("livedma")
_WITH_KIND = ("livedma.decisions", LOGGER)  # their messages begin with their kind


class _Line(logging.Formatter):
    """Formats `12:34:56.789 done      connection 1: ...`: the time, the kind of event, its text.

    On a terminal the kind has a colour, and the text is wrapped below its beginning.
    """

    def __init__(self, paint: Paint) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S")
        self._paint = paint

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        if record.name not in _WITH_KIND:
            record.message = f"{record.levelname.lower():9} {record.message}"
        line = super().formatMessage(record)
        return self._painted(line, record.message) if self._paint.is_terminal else line

    def _painted(self, line: str, message: str) -> str:
        kind, _, text = message.partition(" ")
        time = line[: len(line) - len(message)]
        first, *more = self._paint.wrapped(text.lstrip(), f"{time}{kind:9} ")
        shown = self._paint.dim(time) + self._paint.color(event_color(kind, text), kind)
        return "\n".join([shown + first[len(time) + len(kind) :], *more])


def start(level: str, form: str = "text", *, journal: Path = JOURNAL) -> None:
    """Starts the log of all of livedma. form: text, json or journal, which listens at `journal`."""
    if form == "journal":
        _ALL.addHandler(JournalHandler(journal))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if form == "json" else _Line(Paint.on_errors()))
        _ALL.addHandler(handler)
    _ALL.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Sets the least level that is logged: error, warning, info or debug."""
    _ALL.setLevel(level.upper())


def say(text: str) -> None:
    """Prints a text on standard error at any level; as an object if the log has that form."""
    for handler in _ALL.handlers:
        if isinstance(handler.formatter, JsonFormatter):
            record = logging.LogRecord(_ALL.name, logging.INFO, "", 0, text.strip(), None, None)
            text = handler.formatter.format(record)
            break
    else:
        text = _laid_out(text)
    print(text, file=sys.stderr, flush=True)


def _laid_out(text: str) -> str:
    """Wraps the text on a terminal, where a text that is not indented is a heading."""
    paint = Paint.on_errors()
    if not paint.is_terminal:
        return text
    words = text.strip()
    lines = paint.wrapped(words, text[: len(text) - len(text.lstrip())])
    return "\n".join(lines if text.startswith(" ") else map(paint.bold, lines))
