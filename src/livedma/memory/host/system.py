# SPDX-License-Identifier: BSD-2-Clause
"""Reads the memory of the host as a whole."""

from __future__ import annotations

import os
from dataclasses import dataclass

from livedma.memory.host.buddy import Zone, zones
from livedma.memory.host.files import Files
from livedma.memory.host.huge import HugePool, Transparent, pools, transparent
from livedma.memory.host.text import pairs, pressure

__all__ = ["COUNTERS", "Host", "host"]

#: of /proc/vmstat, since boot
COUNTERS = (
    "compact_stall",
    "compact_success",
    "compact_fail",
    "compact_daemon_wake",
    "pgmigrate_success",
    "pgmigrate_fail",
    "thp_migration_success",
    "thp_migration_fail",
    "thp_migration_split",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "thp_collapse_alloc",
    "thp_collapse_alloc_failed",
    "htlb_buddy_alloc_success",
    "htlb_buddy_alloc_fail",
    "allocstall_normal",
    "allocstall_movable",
    "oom_kill",
)
_OVERCOMMIT = {"0": "heuristic", "1": "always", "2": "never"}


@dataclass(frozen=True)
class Host:
    name: str
    kernel: str
    page_size: int
    total: int
    available: int
    free: int
    pinned: int | None  #: None: this kernel does not count it
    pins_since_boot: int | None  #: pages, each counted again each time it is pinned
    locked: int  #: Mlocked
    unevictable: int
    zones: list[Zone]
    huge_pools: list[HugePool]
    transparent: Transparent | None
    pressure: dict[str, dict[str, float]] | None  #: None: not measured
    counters: dict[str, int]  #: those of COUNTERS that this kernel has
    overcommit: str | None
    commit_limit: int
    committed: int
    may_compact_locked: bool | None  #: whether compaction moves locked memory


def host(files: Files, page_size: int | None = None) -> Host:
    page_size = page_size or os.sysconf("SC_PAGESIZE")
    memory = pairs(files.text("proc/meminfo"))
    events = pairs(files.text("proc/vmstat"))
    acquired, released = (events.get(f"nr_foll_pin_{end}") for end in ("acquired", "released"))
    is_counted = acquired is not None and released is not None
    may_compact = files.number("proc/sys/vm/compact_unevictable_allowed")
    return Host(
        name=files.text("proc/sys/kernel/hostname").strip(),
        kernel=files.text("proc/sys/kernel/osrelease").strip(),
        page_size=page_size,
        total=memory.get("MemTotal", 0),
        available=memory.get("MemAvailable", 0),
        free=memory.get("MemFree", 0),
        # CPUs add to the two counters at different times, so the difference may be negative
        pinned=max(0, (acquired or 0) - (released or 0)) * page_size if is_counted else None,
        pins_since_boot=acquired if is_counted else None,
        locked=memory.get("Mlocked", 0),
        unevictable=memory.get("Unevictable", 0),
        zones=zones(files.text("proc/buddyinfo")),
        huge_pools=pools(files),
        transparent=transparent(files),
        pressure=pressure(files.text("proc/pressure/memory")),
        counters={name: events[name] for name in COUNTERS if name in events},
        overcommit=_OVERCOMMIT.get(files.text("proc/sys/vm/overcommit_memory").strip()),
        commit_limit=memory.get("CommitLimit", 0),
        committed=memory.get("Committed_AS", 0),
        may_compact_locked=None if may_compact is None else bool(may_compact),
    )
