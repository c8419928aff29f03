# SPDX-License-Identifier: BSD-2-Clause
"""Reads the numbers of a command line."""

from __future__ import annotations

import argparse
import re

from livedma import sizes

__all__ = ["MTUS", "duration", "port", "positive", "size"]

MTUS = (256, 512, 1024, 2048, 4096)  #: of RDMA

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}


def size(text: str) -> int:
    """Reads bytes: 64, 4KiB, 1MiB; the unit may be shorter."""
    try:
        return sizes.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
