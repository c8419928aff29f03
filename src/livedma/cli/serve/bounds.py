# SPDX-License-Identifier: BSD-2-Clause
"""Checks the numbers that a server is given: each by itself, and several together.

Without these checks a server whose values cannot work would start, and then refuse every client.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from livedma import sizes
from livedma.cli import units
from livedma.errors import LivedmaError

__all__ = ["Duration", "Number", "Size", "WrongUse", "check_memory", "written"]


class WrongUse(LivedmaError):
    """Says which options do not go together."""


def written(size: int) -> str:
    """Formats a size for a command line: exactly, in the largest unit that divides it."""
    return sizes.exact(size, gap="")


@dataclass(frozen=True, slots=True)
class Size:
    """Reads a number of bytes from `least` to `most`, a multiple of `unit`; a type for argparse."""

    least: int
    most: int
    unit: int = 1

    def __call__(self, text: str) -> int:
        value = int(_read(units.size, text, self))
        if not self.least <= value <= self.most:
            raise argparse.ArgumentTypeError(f"{text!r} is out of range: {self}")
        if value % self.unit:
            raise argparse.ArgumentTypeError(f"{text!r} is no multiple of {written(self.unit)}")
        return value

    def __str__(self) -> str:
        return f"{written(self.least)} to {written(self.most)}"


@dataclass(frozen=True, slots=True)
class Number:
    """Reads a whole number from `least` to `most`. unit: what is counted."""

    least: int
    most: int
    unit: str = ""

    def __call__(self, text: str) -> int:
        if not text.isdecimal() or not self.least <= int(text) <= self.most:
            raise argparse.ArgumentTypeError(f"{text!r} is out of range: {self}")
        return int(text)

    def __str__(self) -> str:
        return f"{self.least} to {self.most}{' ' if self.unit else ''}{self.unit}"


@dataclass(frozen=True, slots=True)
class Duration:
    """Reads seconds from `least` to `most`, which are written as on a command line."""

    least: str
    most: str

    def __call__(self, text: str) -> float:
        value = _read(units.duration, text, self)
        if not units.duration(self.least) <= value <= units.duration(self.most):
            raise argparse.ArgumentTypeError(f"{text!r} is out of range: {self}")
        return value

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"


def _read(kind: Callable[[str], float], text: str, bounds: object) -> float:
    """Reads a text as `kind`; if it cannot be read, the error names the range as well."""
    try:
        return kind(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, {bounds}") from None


def check_memory(args: argparse.Namespace, reserve: int, late_replies: int) -> None:
    """Raises WrongUse if no RDMA connection could be made with these values, each of them in range.

    reserve: buffers that a connection has besides one for data. late_replies: replies that take
    room in the window besides those of credits.
    """
    from livedma.memory.backing import PAGE
    from livedma.rpc.rdma_memory import Kind, least_data_bytes, receives_bytes

    granule = Kind(args.pages).granule
    receives = receives_bytes(2 * args.credits, args.inline, granule)
    if granule == PAGE:
        late = receives_bytes(late_replies, args.inline)
    else:  # in the same granules, as far as they have room
        late = receives_bytes(2 * args.credits + late_replies, args.inline, granule) - receives
    buffers = least_data_bytes(args.buffer, reserve, granule)
    mapped = int(args.window * args.mapped)
    needs = (
        f"Receives and replies for --credits {args.credits} of --inline {written(args.inline)} "
        f"take {written(receives)}"
    )
    if granule != PAGE:
        needs += f" in --pages {args.pages}"
    takes = f"two of --buffer, one of them for control traffic, take {written(buffers)}"
    if receives + late + buffers > args.window:
        raise WrongUse(
            f"--window {written(args.window)} is too small: {needs} (and {written(late)} for "
            f"replies that come late), {takes}; "
            f"the window has to be {written(receives + late + buffers)} at least"
        )
    if receives + buffers > mapped:
        raise WrongUse(
            f"--mapped {args.mapped} of --window {written(args.window)} is {written(mapped)}, "
            f"which is too small: {needs}, {takes}; "
            f"{written(receives + buffers)} have to be mapped at least"
        )
    for name, limit in (("budget", args.budget), ("pin-limit", args.pin_limit)):
        if limit is not None and limit < mapped:
            raise WrongUse(
                f"--{name} {written(limit)} is too small for one connection, which begins with "
                f"{written(mapped)} (--mapped {args.mapped} of --window {written(args.window)})"
            )
