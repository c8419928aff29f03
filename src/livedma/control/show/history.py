# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the last minutes of each connection, coarsely. Time lines begin with them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from livedma.control.show.frame import Frame

__all__ = ["History"]

_KEPT = 1200  # frames: ten minutes
_CONNECTIONS_MOST = 32  # that have time lines


@dataclass(frozen=True, slots=True)
class Point:
    """Holds the figures of one connection in one frame."""

    bytes_per_s: float
    operations_per_s: float
    p99_ns: int
    mapped_bytes: int | None  #: None: its memory is not managed, or not known
    sessions: int


class History:
    """Keeps the last frames' figures. One thread adds; any thread may read."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, dict[int, Point]]] = deque(maxlen=_KEPT)

    def add(self, frame: Frame) -> None:
        snapshot = frame.snapshot
        self._kept.append(
            (
                snapshot.wall_s,
                {
                    one.number: Point(
                        snapshot.per_s(one.bytes),
                        snapshot.per_s(one.operations),
                        one.latency.p99_ns,
                        one.inside.mapped_bytes if one.inside else None,
                        one.sessions,
                    )
                    for one in snapshot.connections
                },
            )
        )

    def as_json(self) -> dict[str, Any]:
        """Returns columns: `at`, and for each connection the fields of a point. null: the
        connection did not exist.

        Only the latest 32 connections have columns, since clients may come and go in great numbers.
        """
        kept = list(self._kept)
        last = {number: index for index, (_, points) in enumerate(kept) for number in points}
        latest = sorted(last, key=lambda number: (last[number], number), reverse=True)
        return {
            "at": [at_s for at_s, _ in kept],
            "connections": {
                str(number): _columns(number, kept) for number in sorted(latest[:_CONNECTIONS_MOST])
            },
        }


def _columns(number: int, kept: list[tuple[float, dict[int, Point]]]) -> dict[str, list[Any]]:
    found = [points.get(number) for _, points in kept]
    return {
        name: [None if one is None else getattr(one, name) for one in found]
        for name in Point.__slots__
    }
