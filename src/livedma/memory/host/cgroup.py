# SPDX-License-Identifier: BSD-2-Clause
"""Finds the limit that a process's cgroup, or one above it, puts on its memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from livedma.memory.host.files import Files
from livedma.memory.host.text import number, pairs

__all__ = ["CgroupMemory", "Place", "memory_of", "mounts", "place_of"]

_NO_LIMIT = 1 << 62  # version 1 writes "no limit" as a number at least this large
_DEEPEST = 64
_FILES = {  # version 1 has no memory.high
    1: ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.high"),
    2: ("memory.current", "memory.max", "memory.high"),
}


@dataclass(frozen=True)
class Place:
    """Names the cgroup of a process, in the hierarchy that has the memory controller."""

    version: int
    path: str


@dataclass(frozen=True)
class CgroupMemory:
    """Describes the memory of the cgroup, own or above, that leaves a process the least."""

    path: str  #: of that cgroup
    directory: str  #: where it is mounted
    version: int
    max: int | None  #: None: no limit
    high: int | None  #: where the kernel begins to slow its processes down
    current: int
    reclaimable: int  #: of `current`: files and caches, which go when memory is needed

    @property
    def limit(self) -> int | None:
        limits = [limit for limit in (self.max, self.high) if limit is not None]
        return min(limits, default=None)

    @property
    def used(self) -> int:
        """Returns what the kernel cannot reclaim."""
        return max(0, self.current - self.reclaimable)


def place_of(text: str) -> Place | None:
    """Reads /proc/PID/cgroup. Where version 1 has the memory controller, its place counts."""
    unified = None
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[2].startswith("/"):
            continue
        hierarchy, controllers, path = parts
        if "memory" in controllers.split(","):
            return Place(1, path)
        if hierarchy == "0" and not controllers:
            unified = Place(2, path)
    return unified


def mounts(text: str) -> dict[int, tuple[str, str]]:
    """Reads /proc/self/mountinfo. Returns, by version, (the cgroup that is mounted, where)."""
    found: dict[int, tuple[str, str]] = {}
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(kind) < 3:
            continue
        where = (_unescaped(fields[3]), _unescaped(fields[4]))
        if kind[0] == "cgroup2":
            found.setdefault(2, where)
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault(1, where)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-3][0-7]{2})", lambda found: chr(int(found[1], 8)), text)


def memory_of(
    files: Files, place: Place, mounted: dict[int, tuple[str, str]]
) -> CgroupMemory | None:
    """Returns the memory of the cgroup that leaves the least, or of the lowest one if none has a
    limit. None: the cgroups cannot be seen from here, or do not tell their use.
    """
    if place.version not in mounted:
        return None
    top, directory = (PurePosixPath(part) for part in mounted[place.version])
    path = PurePosixPath(place.path)
    if ".." in path.parts or not path.is_relative_to(top):
        return None  # outside of what this cgroup namespace shows
    relative = path.relative_to(top)
    chain = [relative, *relative.parents][:_DEEPEST]
    found = [
        memory
        for each in chain
        if (memory := _read(files, str(directory / each), place.version, str(top / each)))
    ]
    limited = [memory for memory in found if memory.limit is not None]
    if limited:
        return min(limited, key=lambda memory: (memory.limit or 0) - memory.used)
    return found[0] if found else None


def _read(files: Files, directory: str, version: int, path: str) -> CgroupMemory | None:
    relative = directory.lstrip("/")
    current, limit, high = (
        number(files.text(f"{relative}/{name}").strip()) for name in _FILES[version]
    )
    if current is None:
        return None
    stat = pairs(files.text(f"{relative}/memory.stat"))
    prefix = "" if version == 2 else "total_"
    kinds = ("inactive_file", "active_file", "slab_reclaimable")
    reclaimable = sum(stat.get(prefix + kind, 0) for kind in kinds)
    return CgroupMemory(
        path=path,
        directory=directory,
        version=version,
        max=_limit(limit),
        high=_limit(high),
        current=current,
        reclaimable=min(current, reclaimable),
    )


def _limit(value: int | None) -> int | None:
    return None if value is None or value >= _NO_LIMIT else value
