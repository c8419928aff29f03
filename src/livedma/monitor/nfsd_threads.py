# SPDX-License-Identifier: BSD-2-Clause
"""Reads how much CPU nfsd's threads use and wait for, and how busy the host's CPUs are."""

from __future__ import annotations

import os
from pathlib import Path

from livedma.monitor.snapshot import KernelHost

__all__ = ["Threads"]

_PROC = Path("/proc")
_NAME = "nfsd"
_KTHREADD = "2"  # the parent of all threads of the kernel
_IDLE, _IOWAIT = 3, 4  # among the times of /proc/stat's first line
_COUNTED = 8  # guests' times are in those of users already


class Threads:
    """Gives differences between one look and the next."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._known: dict[str, tuple[int, int]] = {}
        self._cpu = (0, 0)

    def look(self, threads: int, serving_ns: int = 0, interval_s: float = 0.0) -> KernelHost:
        """Returns what happened since the look before, `interval_s` ago. `threads` is how many nfsd
        has, and `serving_ns` how long they worked on calls, as the programs counted.
        """
        used_ns, waited_ns = self._threads_since(threads)
        span_ns = interval_s * 1e9
        busy = self._busy_since()
        return KernelHost(
            threads=threads or len(self._known),
            serving=serving_ns / span_ns if span_ns else 0.0,
            cpus=os.cpu_count() or 1,
            cpus_busy=busy,
            cpus_used=used_ns / span_ns if span_ns else 0.0,
            cpu_waiting=waited_ns / span_ns if self._known and span_ns else None,
        )

    def _threads_since(self, threads: int) -> tuple[int, int]:
        """Returns how long nfsd's threads have run and have waited for a CPU, in ns."""
        now = {pid: times for pid in self._known if (times := self._times(pid)) is not None}
        if len(now) != threads or not threads:
            now = {pid: times for pid in self._pids() if (times := self._times(pid)) is not None}
        used = sum(now[pid][0] - self._known[pid][0] for pid in now.keys() & self._known.keys())
        waited = sum(now[pid][1] - self._known[pid][1] for pid in now.keys() & self._known.keys())
        self._known = now
        return max(used, 0), max(waited, 0)

    def _times(self, pid: str) -> tuple[int, int] | None:
        try:
            ran, waited, _ = (self._proc / pid / "schedstat").read_text().split()
        except (OSError, ValueError):
            return None
        return int(ran), int(waited)

    def _pids(self) -> list[str]:
        return [entry.name for entry in os.scandir(self._proc) if self._is_nfsd(entry.name)]

    def _is_nfsd(self, pid: str) -> bool:
        if not pid.isdigit():
            return False
        try:
            before, _, after = (self._proc / pid / "stat").read_text().rpartition(")")
        except OSError:
            return False
        return before.endswith(f"({_NAME}") and after.split()[1] == _KTHREADD

    def _busy_since(self) -> float:
        """Returns how busy all CPUs were, of 1."""
        with (self._proc / "stat").open() as file:
            times = [int(time) for time in file.readline().split()[1 : 1 + _COUNTED]]
        now = sum(times), times[_IDLE] + times[_IOWAIT]
        whole, idle = now[0] - self._cpu[0], now[1] - self._cpu[1]
        self._cpu = now
        return 1 - idle / whole if whole > 0 else 0.0
