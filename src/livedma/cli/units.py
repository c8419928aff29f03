# SPDX-License-Identifier: BSD-2-Clause
"""Reads the numbers of a command line."""

from __future__ import annotations

import argparse
import re

__all__ = ["MTUS", "duration", "port", "positive", "size"]

MTUS = (256, 512, 1024, 2048, 4096)  #: of RDMA

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str) -> int:
    """Reads bytes: 64, 4KiB, 1MiB; the unit may be shorter."""
    match = re.fullmatch(r"(\d+)([kmgt]?)(i?b)?", text.lower())
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 64, 4KiB or 1MiB")
    return int(match[1]) * _UNITS[match[2]]


def duration(text: str) -> float:
    """Reads seconds: 5ms, 0.5s, 200us, 2."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 5ms, 200us or 1s")
    return float(match[1]) * _SECONDS[match[2]]


def positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return int(text)
