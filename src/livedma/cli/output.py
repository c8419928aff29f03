"""What commands that print packets share: where output goes and what was counted on the way."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import BinaryIO

from livedma._native.wire import Batch
from livedma.capture.sinks import FILE_FORMATS
from livedma.errors import LivedmaError
from livedma.wire.words import amount

__all__ = ["Tally", "amount", "colors_wanted", "drop_output", "open_output"]


@contextmanager
def open_output(kind: str, path: str | None) -> Iterator[BinaryIO]:
    """Standard output, or the file at `path`; "-" is standard output too."""
    is_stdout = path is None or path == "-"
    if is_stdout and kind in FILE_FORMATS and sys.stdout.isatty():
        raise LivedmaError(f"{kind} is binary: give a file with --write FILE")
    try:
        with nullcontext(sys.stdout.buffer) if is_stdout else open(str(path), "wb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        if is_stdout:
            drop_output()
        name = "standard output" if is_stdout else path
        raise LivedmaError(f"cannot write {name}: {error.strerror or error}") from None


def drop_output() -> None:
    """What standard output still buffers must not raise again when the interpreter closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def colors_wanted(path: str | None) -> bool:
    return path is None and sys.stdout.isatty()


class Tally:
    """Counts what went by; its text is the line that a command ends with."""

    def __init__(self) -> None:
        self.packets = self.others = self.bad_icrcs = self.broken = 0

    def add(self, batch: Batch) -> None:
        bad_icrcs, broken = batch.tally()
        self.packets += len(batch)
        self.others += batch.other
        self.bad_icrcs += bad_icrcs
        self.broken += broken

    def __str__(self) -> str:
        parts = [amount(self.packets, "RoCE packet")]
        if self.packets:
            bad = self.bad_icrcs
            parts.append(f"{bad:,} with a BAD ICRC" if bad else "no bad ICRC")
        if self.broken:
            parts.append(f"{self.broken:,} with errors")
        if self.others:
            parts.append(f"{self.others:,} not RoCE, not shown")
        return ", ".join(parts)
