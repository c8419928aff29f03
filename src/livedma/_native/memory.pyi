# SPDX-License-Identifier: BSD-2-Clause
from typing import NamedTuple

class MemoryCounters(NamedTuple):
    """Counts what the kernel did to memory: compaction and migration, by kind
    (bpf/memory_counters.h).
    """

    compaction_begun: int
    compaction_ended: dict[str, int]
    migration_calls: dict[str, int]
    pages_moved: dict[str, int]
    pages_failed: dict[str, int]
    huge_moved: int
    huge_failed: int
    huge_split: int

class MemorySession:
    """Counts the kernel's compaction and migration from the moment it is made until it is
    closed.
    """

    def __init__(self) -> None: ...
    def close(self) -> None:
        """Ends the counting. Calling it again has no effect."""
    def missing(self) -> list[str]:
        """Returns the tracepoints that this kernel does not have."""
    def counters(self) -> MemoryCounters:
        """Returns what was counted since it was made."""
