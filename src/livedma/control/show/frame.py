# SPDX-License-Identifier: BSD-2-Clause
"""A frame is what people are shown: a server at one moment, in the form that all views take.

A frame covers an interval that is long enough to be read (`feed.PERIOD_S`). Its diagnoses are those
of the controller, whose intervals are shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.diagnose.room import SessionRoom
from livedma.monitor.snapshot import Snapshot, Source

__all__ = ["Frame", "Part", "WindowMap"]


@dataclass(frozen=True, slots=True)
class Part:
    """Describes a shard: what was mapped together. `offset` is from the window's beginning."""

    offset: int
    bytes: int
    use: Literal["calls", "data"]  #: calls: Receives and replies
    buffers: int
    taken: int


@dataclass(frozen=True, slots=True)
class WindowMap:
    """Describes a connection's window. What lies outside of its parts is reserved and has no
    memory.
    """

    connection: int
    bytes: int
    mapped_bytes: int
    parts: tuple[Part, ...]

    @property
    def leased_bytes(self) -> int:
        """Returns how much of the mapped memory is in use now."""
        return sum(one.bytes * one.taken // one.buffers for one in self.parts if one.buffers)


@dataclass(frozen=True, slots=True)
class Frame:
    """Shows a server in one interval. `number` counts up from 1, so that a view can ask for what is
    new. `watching` is the source of the controller's snapshots. `last_event` is the number of the
    last event before the frame. `policy` is empty where servers are watched from outside and nobody
    steers them; `server` then says where.
    """

    number: int
    server: str  #: the directory that it exports
    started_s: float  #: by the wall clock
    watching: Source
    policy: str
    dry_run: bool
    snapshot: Snapshot
    diagnoses: tuple[Diagnosis, ...]
    windows: tuple[WindowMap, ...]
    last_event: int

    @property
    def is_steered(self) -> bool:
        return bool(self.policy)

    def diagnosis(self, connection: int) -> Diagnosis | None:
        return next((one for one in self.diagnoses if one.connection == connection), None)

    def window(self, connection: int) -> WindowMap | None:
        return next((one for one in self.windows if one.connection == connection), None)

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        for one in found["diagnoses"]:
            one["limit"] = one["limit"].value
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Frame:
        return cls(
            **{
                **found,
                "snapshot": Snapshot.from_json(found["snapshot"]),
                "diagnoses": tuple(map(_diagnosis, found["diagnoses"])),
                "windows": tuple(
                    WindowMap(**{**one, "parts": tuple(Part(**part) for part in one["parts"])})
                    for one in found["windows"]
                ),
            }
        )


def _diagnosis(found: Mapping[str, Any]) -> Diagnosis:
    room = found.get("room")
    return Diagnosis(
        **{
            **found,
            "limit": Limit(found["limit"]),
            "room": None if room is None else SessionRoom(**room),
        }
    )
