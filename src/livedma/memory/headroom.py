# SPDX-License-Identifier: BSD-2-Clause
"""Finds how much more memory this process may use before the kernel has to kill a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
_KEPT_BACK = 64  #: 1/64 of what there is stays free
_FRESH_S = 0.05  #: for which a look counts,
_FRESH_PART = 64  #: unless 1/64 of what it saw was granted since


@dataclass(frozen=True)
class Headroom:
    free: int  #: bytes
    limit: str  #: what sets it, in words


def headroom(root: Path = _ROOT) -> Headroom:
    """Returns the least of what the machine and the process's memory cgroups leave."""
    machine = _fields(root / "proc/meminfo")
    total = machine.get("MemTotal", 0) * 1024
    free = machine.get("MemAvailable", 0) * 1024 - total // _KEPT_BACK
    found = [Headroom(free, f"the machine's memory ({total >> 20} MiB)")]
    for directory in _cgroups(root):
        found += _of_cgroup(directory, root)
    least = min(found, key=lambda one: one.free)
    return Headroom(max(least.free, 0), least.limit)


class Gauge:
    """Checks many small requests. It remembers the headroom it saw, since looking takes longer than
    mapping a small piece of memory.
    """

    def __init__(
        self,
        look: Callable[[], Headroom] = headroom,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._clock = look, clock
        self._lock = threading.Lock()
        self._seen, self._looked_s, self._granted = Headroom(0, ""), -_FRESH_S, 0

    def refusal(self, length: int) -> Headroom | None:
        """Returns None if `length` bytes can be had. Otherwise returns what is left, by a look just
        now.
        """
        with self._lock:
            is_little = self._granted + length <= self._seen.free // _FRESH_PART
            if not is_little or self._clock() - self._looked_s >= _FRESH_S:
                self._seen, self._looked_s, self._granted = self._look(), self._clock(), 0
                if length > self._seen.free:
                    return self._seen
            self._granted += length
            return None


def _fields(path: Path) -> dict[str, int]:
    """Parses lines such as `MemTotal: 123 kB` and `inactive_file 123`."""
    try:
        lines = [line.replace(":", "").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _cgroups(root: Path) -> Iterator[Path]:
    """Yields the process's own cgroup and all above it, of version 2 and 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        if controllers:
            top = mounted / "memory"
        else:
            top = mounted if (mounted / "cgroup.controllers").exists() else mounted / "unified"
        own = top / path.lstrip("/")
        yield own
        yield from (above for above in own.parents if above.is_relative_to(top))


def _of_cgroup(directory: Path, root: Path) -> list[Headroom]:
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = (directory / limit_name).read_text().strip()
            usage = int((directory / usage_name).read_text())
        except (OSError, ValueError):
            continue
        if not limit.isdigit():  # "max"
            continue
        used = usage - _fields(directory / "memory.stat").get(cache_name, 0)
        free = int(limit) - max(used, 0) - int(limit) // _KEPT_BACK
        name = f"{limit_name} of /{directory.relative_to(root)} ({int(limit) >> 20} MiB)"
        return [Headroom(free, name)]
    return []
