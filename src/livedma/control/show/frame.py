"""What people are shown: a server at one moment, in the one form that all views take.

A frame covers an interval that is long enough to be read (`feed.PERIOD_S`); its diagnoses are the
controller's, which looks more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from livedma.control.limits import Diagnosis, Limit
from livedma.monitor.snapshot import Snapshot, Source

__all__ = ["Frame", "Part", "WindowMap"]


@dataclass(frozen=True, slots=True)
class Part:
    """A shard: what was mapped together. offset: from the window's beginning."""

    offset: int
    bytes: int
    use: Literal["calls", "data"]  #: calls: their Receives, and replies
    buffers: int
    taken: int


@dataclass(frozen=True, slots=True)
class WindowMap:
    """A connection's window. Whatever is in none of its parts is reserved, and has no memory."""

    connection: int
    bytes: int
    mapped_bytes: int
    parts: tuple[Part, ...]

    @property
    def leased_bytes(self) -> int:
        """In use just now, of what is mapped."""
        return sum(one.bytes * one.taken // one.buffers for one in self.parts if one.buffers)


@dataclass(frozen=True, slots=True)
class Frame:
    """number: counts up from 1, for those who ask what is new. watching: what the controller's
    snapshots come from. last_event: the number of the last one that was told before.
    """

    number: int
    server: str  #: what it exports
    started_s: float  #: by the clock on the wall
    watching: Source
    policy: str
    dry_run: bool
    snapshot: Snapshot
    diagnoses: tuple[Diagnosis, ...]
    windows: tuple[WindowMap, ...]
    last_event: int

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
                "diagnoses": tuple(
                    Diagnosis(**{**one, "limit": Limit(one["limit"])}) for one in found["diagnoses"]
                ),
                "windows": tuple(
                    WindowMap(**{**one, "parts": tuple(Part(**part) for part in one["parts"])})
                    for one in found["windows"]
                ),
            }
        )
