# SPDX-License-Identifier: BSD-2-Clause
from typing import NamedTuple

EVENTS: tuple[str, ...]
NONE: int

class PoolEvent(NamedTuple):
    """Describes an event of a pool, a shard or a buffer."""

    time_ns: int
    event: str
    pool: int
    shard: int | None
    buffer: int | None
    control: bool
    value: int

class EventReader:
    """Reads the events of all pools of the process, from now on. There is one reader at a time."""

    def __init__(self, capacity: int = 65536) -> None: ...
    @property
    def lost(self) -> int:
        """Counts the events that found the ring full, up to the last read."""
    def close(self) -> None:
        """Ends the reading: no event is kept from now on. Calling it again has no effect."""
    def read(self, limit: int = 1024) -> list[PoolEvent]:
        """Returns up to limit events, the oldest first."""
    def read_columns(self, limit: int = 65536) -> tuple[int, list[bytearray]]:
        """Returns up to limit events by column: (count, bytes of each field in the order of
        PoolEvent, `event` by its place in EVENTS).
        """
