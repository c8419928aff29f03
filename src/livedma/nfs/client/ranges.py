# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the bytes of a file that a lock owner has locked."""

from __future__ import annotations

from collections.abc import Iterable

from livedma.nfs.client.codec.lock import Range

__all__ = ["added", "without"]


def without(ranges: Iterable[Range], start: int, length: int | None) -> list[Range]:
    """Returns the ranges without these bytes (None: to the end)."""
    end = None if length is None else start + length
    ret = []
    for one in ranges:
        if (end is not None and one.start >= end) or (one.end is not None and one.end <= start):
            ret.append(one)
            continue
        if one.start < start:
            ret.append(Range(one.start, start - one.start, one.write))
        if end is not None and (one.end is None or one.end > end):
            ret.append(Range(end, None if one.end is None else one.end - end, one.write))
    return ret


def added(ranges: Iterable[Range], new: Range) -> list[Range]:
    """Returns the ranges after a new lock, which replaces older locks of its bytes."""
    return sorted([*without(ranges, new.start, new.length), new], key=lambda one: one.start)
