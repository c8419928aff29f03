"""Pages that the kernel moves while we watch: compaction and migration."""

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

__all__ = ["Motion", "MotionCounter"]

_WHY_NOT = {
    errno.EPERM: "BPF needs root (CAP_BPF and CAP_PERFMON)",
    errno.EACCES: "BPF tracepoints need to read /sys/kernel/tracing: run it as root",
    errno.ENOENT: "this kernel has none of the tracepoints, or tracefs is not mounted: "
    "sudo mount -t tracefs none /sys/kernel/tracing",
    errno.ESRCH: "this kernel has no BTF, which the BPF programs need",
}


@dataclass(frozen=True)
class Motion:
    """In the last `seconds`. A `source` of vmstat knows only direct compaction, which makes a task
    wait, and no causes; that of BPF knows all compaction, a run through a zone being an attempt.
    """

    source: str  #: bpf or vmstat
    seconds: float
    attempts: int  #: of compaction
    failures: int  #: of these, runs that ended without a block of the size that was asked for
    pages_moved: int
    pages_failed: int
    ends: dict[str, int] = field(default_factory=dict)  #: of compaction, with BPF
    moved_because: dict[str, int] = field(default_factory=dict)
    failed_because: dict[str, int] = field(default_factory=dict)

    def rate(self, count: int) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


class MotionCounter:
    """Counts from the moment it is made; since() says what was new since the last time."""

    def __init__(self, files: Files | None = None, *, clock: Callable[[], float] = time.monotonic):
        self.trouble = ""  #: why not all of BPF's counters are there, in words
        self._files, self._clock = files or Files(), clock
        self._session = None
        try:
            from livedma._native.memory import MemorySession

            self._session = MemorySession()
            missing = self._session.missing()
            if missing:
                self.trouble = f"this kernel has no tracepoint {' and no '.join(missing)}"
        except ImportError:
            self.trouble = "libbpf is missing: sudo apt install libbpf1"
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
        """May be called again."""
        if self._session is not None:
            self._session.close()

    def since(self) -> Motion:
        now, counts = self._clock(), self._counts()
        seconds, self._then = now - self._then, now
        runs, ends, moved, failed = (
            # a difference of Counters leaves out what is not more than before
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
    """Since something began."""

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
