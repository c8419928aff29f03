# SPDX-License-Identifier: BSD-2-Clause
from typing import NamedTuple

class MemoryCounters(NamedTuple):
    compaction_begun: int
    compaction_ended: dict[str, int]
    migration_calls: dict[str, int]
    pages_moved: dict[str, int]
    pages_failed: dict[str, int]
    huge_moved: int
    huge_failed: int
    huge_split: int

class MemorySession:
    def __init__(self) -> None: ...
    def close(self) -> None: ...
    def missing(self) -> list[str]: ...
    def counters(self) -> MemoryCounters: ...
