# SPDX-License-Identifier: BSD-2-Clause
"""Counts the pages that the kernel moves: compaction and migration."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from livedma.memory.host.files import Files
from livedma.memory.host.text import pairs
from livedma.privilege import as_root

__all__ = ["Motion", "MotionCounter"]

_WHY_NOT = {
    errno.EPERM: "BPF needs root (CAP_BPF and CAP_PERFMON)",
    errno.EACCES: "BPF tracepoints need to read /sys/kernel/tracing: run it as root",
    errno.ENOENT: "this kernel has none of the tracepoints, or tracefs is not mounted: "
    + as_root("mount -t tracefs none /sys/kernel/tracing"),
    errno.ESRCH: "this kernel has no BTF, which the BPF programs need",
}


@dataclass(frozen=True)
class Motion:
    """Counts what the kernel has moved in the last `seconds`. The `source` vmstat knows only direct
    compaction, which makes a task wait, and no causes. The source bpf knows all compaction; there,
    each run through a zone is an attempt.
    """

    source: str  #: bpf or vmstat
    seconds: float
    attempts: int  #: of compaction
    failures: int  #: of these, the attempts that ended without a block of the size asked for
    pages_moved: int
    pages_failed: int
    ends: dict[str, int] = field(default_factory=dict)  #: of compaction, with BPF
    moved_because: dict[str, int] = field(default_factory=dict)
    failed_because: dict[str, int] = field(default_factory=dict)

    def rate(self, count: int) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


class MotionCounter:
    """Counts from the moment it is made. since() returns what is new since the last call."""

    def __init__(self, files: Files | None = None, *, clock: Callable[[], float] = time.monotonic):
        self.trouble = ""  #: why some of BPF's counters are missing, in words
        self._files, self._clock = files or Files(), clock
        self._session = None
        try:
            from livedma._native.memory import MemorySession

            self._session = MemorySession()
            missing = self._session.missing()
            if missing:
                self.trouble = f"this kernel has no tracepoint {' and no '.join(missing)}"
        except ImportError:
            self.trouble = f"libbpf is missing: {as_root('apt install libbpf1')}"
        except OSError as error:
            self.trouble = _WHY_NOT.get(error.errno or 0, f"BPF programs: {error.strerror}")
        self._then, self._before = self._clock(), self._counts()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the counting. Calling it a second time has no effect."""
        if self._session is not None:
            self._session.close()

    def since(self) -> Motion:
        now, counts = self._clock(), self._counts()
        seconds, self._then = now - self._then, now
        runs, ends, moved, failed = (
            # a difference of Counters leaves out what has not grown
            new - old
            for new, old in zip(counts, self._before, strict=True)
        )
        self._before = counts
        return Motion(
            source="bpf" if self._session is not None else "vmstat",
            seconds=seconds,
            attempts=runs["begun"],
            failures=runs["failed"],
            pages_moved=moved.total(),
            pages_failed=failed.total(),
            ends=dict(ends),
            moved_because=dict(moved),
            failed_because=dict(failed),
        )

    def _counts(self) -> _Counts:
        if self._session is None:
            return _of_vmstat(self._files)
        counted = self._session.counters()
        ends = Counter(counted.compaction_ended)
        runs = {"begun": counted.compaction_begun, "failed": ends.total() - ends["success"]}
        moved, failed = counted.pages_moved, counted.pages_failed
        return _Counts(Counter(runs), ends, Counter(moved), Counter(failed))


class _Counts(NamedTuple):
    """Holds what a source has counted since it began."""

    runs: Counter[str]  #: of compaction: begun, failed
    ends: Counter[str]
    moved: Counter[str]
    failed: Counter[str]


def _of_vmstat(files: Files) -> _Counts:
    events = pairs(files.text("proc/vmstat"))
    return _Counts(
        runs=Counter(begun=events.get("compact_stall", 0), failed=events.get("compact_fail", 0)),
        ends=Counter(),
        moved=Counter({"unknown": events.get("pgmigrate_success", 0)}),
        failed=Counter({"unknown": events.get("pgmigrate_fail", 0)}),
    )
