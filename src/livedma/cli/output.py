# SPDX-License-Identifier: BSD-2-Clause
"""Opens the output of commands that print packets, and counts those packets."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO

from livedma._native.wire import Batch
from livedma.capture.sinks import FILE_FORMATS
from livedma.cli.paint import Paint
from livedma.errors import LivedmaError
from livedma.wire.words import amount

__all__ = ["Tally", "amount", "colors_wanted", "drop_output", "open_output", "refuse_own_input"]


@contextmanager
def open_output(
    kind: str, path: str | None, *, reading: str | None = None, whole: bool = False
) -> Iterator[BinaryIO]:
    """Opens the file at `path`, or standard output if that is None or "-".

    reading: the file that is read meanwhile; the output must not be the same one. whole: the old
    file at `path` stays until the block ends without an exception.
    """
    is_stdout = path is None or path == "-"
    if is_stdout and kind in FILE_FORMATS and sys.stdout.isatty():
        raise LivedmaError(f"{kind} is binary: give a file with --write FILE")
    if reading is not None:
        refuse_own_input(reading, None if is_stdout else path)
    try:
        with _opened(None if is_stdout else path, whole) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        if is_stdout:
            drop_output()
        name = "standard output" if is_stdout else path
        raise LivedmaError(f"cannot write {name}: {error.strerror or error}") from None


def _opened(path: str | None, whole: bool) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return nullcontext(sys.stdout.buffer)
    return replacing(path) if whole else open(path, "wb")


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Opens a file beside `path` that replaces it when the block ends without an exception.

    A file that cannot be replaced is written in place: a device, a pipe, a file with other names
    (hard links), a file in a directory that takes no new ones.
    """
    target = os.path.realpath(path)
    try:
        before = os.stat(target)
    except FileNotFoundError:
        before = None
    directory, name = os.path.split(target)
    if before is not None:
        is_plain = stat.S_ISREG(before.st_mode) and before.st_nlink == 1
        if not is_plain or not os.access(directory, os.W_OK):
            with open(target, "wb") as file:
                yield file
            return
        with open(target, "ab"):  # a file that must not be written must not be replaced either
            pass
    partial = os.path.join(directory, f".{name}.{os.getpid()}.partial")
    try:
        with open(partial, "xb") as file:
            if before is not None:
                _dress(file.fileno(), before)
            yield file
        os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def _dress(fd: int, before: os.stat_result) -> None:
    """Gives a new file the owner and the permissions of the one that it replaces."""
    with suppress(PermissionError):
        os.fchown(fd, before.st_uid, before.st_gid)
        os.fchmod(fd, stat.S_IMODE(before.st_mode))


def refuse_own_input(reading: str, path: str | None) -> None:
    """Raises LivedmaError if the output, by whatever name, is the file that is read.

    path: the output; None is standard output. reading: "-" is standard input.
    """
    try:
        source = os.fstat(sys.stdin.fileno()) if reading == "-" else os.stat(reading)
        target = os.fstat(sys.stdout.fileno()) if path is None else os.stat(path)
    except (OSError, ValueError):  # one of them is not there: nothing can be lost
        return
    if os.path.samestat(source, target) and stat.S_ISREG(source.st_mode):
        name = "standard output" if path is None else path
        raise LivedmaError(f"{name} is the file that is read: write to another one")


def drop_output() -> None:
    """Points standard output at /dev/null: what it still buffers must not raise again when the
    interpreter closes it.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def colors_wanted(path: str | None) -> bool:
    return path is None and Paint.on_output().has_colors


class Tally:
    """Counts packets; its text is the last line that a command prints."""

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
