# SPDX-License-Identifier: BSD-2-Clause
from typing import NamedTuple

EVENTS: tuple[str, ...]
NONE: int

class PoolEvent(NamedTuple):
    time_ns: int
    event: str
    pool: int
    shard: int | None
    buffer: int | None
    control: bool
    value: int

class EventReader:
    def __init__(self, capacity: int = 65536) -> None: ...
    @property
    def lost(self) -> int: ...
    def close(self) -> None: ...
    def read(self, limit: int = 1024) -> list[PoolEvent]: ...
    def read_columns(self, limit: int = 65536) -> tuple[int, list[bytearray]]: ...
