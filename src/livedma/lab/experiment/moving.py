# SPDX-License-Identifier: BSD-2-Clause
"""Makes the kernel move memory, in the ways that it does by itself on a busy machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from livedma.lab.experiment.design import LeftOut
from livedma.lab.experiment.frames import Memory

__all__ = ["EVENTS", "LOCKED", "PINNED", "PLAIN", "WAYS", "Event"]

PLAIN, LOCKED, PINNED = WAYS = ("plain", "locked", "pinned")

_ATTEMPTS = 5  # compactions, until a page has moved
_PATIENCE_S = 60.0  # for two passes of the thread that merges pages
_KSM = Path("/sys/kernel/mm/ksm")
_COMPACT = Path("/proc/sys/vm/compact_memory")
_MADV_MERGEABLE, _MADV_HUGEPAGE, _MADV_COLLAPSE = 12, 14, 25

Ranges = Mapping[str, Memory]


@dataclass(frozen=True)
class Event:
    method: str
    check: Callable[[], None]  #: raises LeftOut where the kernel cannot do it
    move: Callable[[Ranges], dict[str, str]]  #: returns the kernel's answer for each range


def _needs(path: Path) -> Callable[[], None]:
    def check() -> None:
        if not os.access(path, os.W_OK):
            raise LeftOut(f"{path} cannot be written: this needs root, and a kernel that has it")

    return check


def _compact(ranges: Ranges) -> dict[str, str]:
    before = {way: memory.frames() for way, memory in ranges.items()}
    for _ in range(_ATTEMPTS):
        _COMPACT.write_text("1")
        if ranges[LOCKED].frames() != before[LOCKED]:
            break
    return dict.fromkeys(ranges, "compacted")


def _check_collapse() -> None:
    memory = Memory(512)
    memory.touch(0)
    try:
        _collapse_one(memory)
    except OSError as error:
        raise LeftOut(f"this kernel makes no huge page when asked: {error.strerror}") from None


def _collapse_one(memory: Memory) -> None:
    memory.advise(_MADV_HUGEPAGE)
    memory.advise(_MADV_COLLAPSE)


def _collapse(ranges: Ranges) -> dict[str, str]:
    def attempt(memory: Memory) -> str:
        try:
            _collapse_one(memory)
        except OSError as error:
            return f"refused: {error.strerror}"
        return "done"

    return {way: attempt(memory) for way, memory in ranges.items()}


@contextmanager
def _merging() -> Iterator[None]:
    """Lets the kernel look for equal pages, as fast as it can; restores its settings."""
    wanted = {"pages_to_scan": "100000", "sleep_millisecs": "0", "run": "1"}
    before = {name: (_KSM / name).read_text() for name in wanted}
    try:
        for name, value in wanted.items():
            (_KSM / name).write_text(value)
        yield
    finally:
        for name, value in before.items():
            (_KSM / name).write_text(value)


def _merge(ranges: Ranges) -> dict[str, str]:
    for memory in ranges.values():
        memory.advise(_MADV_MERGEABLE)
    with _merging():
        scans, end_s = _KSM / "full_scans", time.monotonic() + _PATIENCE_S
        enough = int(scans.read_text()) + 3  # a page that did not change from one to the next
        while int(scans.read_text()) < enough:
            if time.monotonic() > end_s:
                return dict.fromkeys(ranges, "not finished")
            time.sleep(0.05)
    return dict.fromkeys(ranges, "merged")


EVENTS = {
    "compaction": Event(
        "the kernel compacts all memory (vm.compact_memory), as it does by itself when a large "
        f"allocation finds no free piece; again, {_ATTEMPTS} times at most, if no page has moved.",
        _needs(_COMPACT),
        _compact,
    ),
    "huge pages": Event(
        "the kernel collects a range's pages in huge pages (MADV_COLLAPSE), as its thread "
        "khugepaged does by itself where transparent huge pages are on.",
        _check_collapse,
        _collapse,
    ),
    "merging": Event(
        "the kernel merges pages with the same content (KSM), as hypervisors have it do; the "
        "pages of a range have 251 different contents.",
        _needs(_KSM / "run"),
        _merge,
    ),
}
