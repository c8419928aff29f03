# SPDX-License-Identifier: BSD-2-Clause
"""Asks whether locked memory stays where it is: the physical frames of locked and of pinned pages,
before and after the kernel moves memory."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from livedma.lab.experiment.design import (
    Column,
    Experiment,
    Form,
    LeftOut,
    Measures,
    Panel,
    Point,
    Section,
)
from livedma.lab.experiment.footprint import Footprint, available_bytes
from livedma.lab.experiment.frames import PAGE, Memory, interleaved
from livedma.lab.experiment.mlock_answer import answer
from livedma.lab.experiment.moving import EVENTS, LOCKED, PINNED, WAYS, Event
from livedma.lab.experiment.quantities import Value, quantity
from livedma.lab.experiment.runs import Runs
from livedma.memory import pin

__all__ = ["Locks"]

_SHOWN = 3
_FILLER = 5  # pages among those of the three that are given back before memory is moved


class Locks(Experiment):
    name = "mlock"
    question = "Does locked memory (mlock) stay where it is, as a device's DMA needs it to?"
    factors = (Column("event", "what moves memory"), Column("way", "memory"))
    within = ("way",)
    measures = (
        Column("pages", "pages", "count"),
        Column("moved", "moved", "count"),
        Column("moved_share", "moved, of all", "share"),
        Column("lost", "not in memory", "count"),
        Column("changed", "with other content", "count"),
        Column("locked_bytes", "VmLck", "bytes"),
        Column("pinned_bytes", "VmPin", "bytes"),
        Column("outcome", "the kernel's answer"),
        Column("shown", "shown below", "lines"),
    )
    method = (
        "One process has three ranges of private memory in pages of 4 KiB: plain, locked (mlock) "
        "and pinned (a long-term pin, as a driver takes for a region: livedma.memory.pin). Their "
        f"pages are touched in turn, with {_FILLER} more between them that are given back "
        "afterwards, so the three lie among each other in memory that is full of holes. The kernel "
        "is then made to move memory; what moves one range had the same chance at the others.",
        "A page has moved if /proc/self/pagemap shows another physical frame for it than before: a "
        "device that was given the physical address would from then on read and write the memory "
        "of another owner. Every byte is read afterwards: the process itself sees no change.",
        *(f"{name.capitalize()}: {event.method}" for name, event in EVENTS.items()),
    )
    limits = (
        "Whether a page moves is up to the kernel and the state of its memory: a page that stayed "
        "here may move elsewhere. One page that moves under DMA is enough to corrupt memory; so "
        "the answer is whether pages move, not how many.",
        "A device in software finds memory by the process's addresses and is not hurt. The page is "
        "about hardware, and about an IOMMU, whose tables hold frames too.",
    )
    point_limit_s = 120.0
    range_bytes = 32 << 20  #: of each of the three

    def points(self, form: Form) -> list[Point]:
        return [{"event": name} for name in EVENTS]

    def run(self, point: Point) -> Measures:
        rows = self.rows(point)
        return next(found for levels, found in rows if levels["way"] == point["way"])

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        event = EVENTS[str(point["event"])]
        event.check()
        needed = self.range_bytes * (_FILLER + len(WAYS)) * 2
        if available_bytes() < needed:
            raise LeftOut(f"{quantity(needed, 'bytes')} of memory are not available: free some")
        return [({"way": way}, found) for way, found in _measure(event, self.range_bytes).items()]

    def answer(self, runs: Runs) -> list[str]:
        return answer(runs)

    def panels(self, runs: Runs) -> Sequence[Panel]:
        return (Panel("moved", "Pages that moved", "event", "moved_share", "way", is_log=False),)

    def sections(self, runs: Runs) -> Sequence[Section]:
        """Shows pages of one run by their frames."""
        body = [
            [str(row.point["event"]), str(row.point["way"]), *line.split("  ")]
            for row in runs
            if row.repetition == 0 and not row.problem
            for line in str(row.measures["shown"]).splitlines()
        ]
        head = ("what moved memory", "memory", "page", "physical frame before", "and after")
        return (Section("Some pages of the first turn", head=head, body=body),)


def _measure(event: Event, length: int) -> dict[str, dict[str, Value]]:
    pages = length // PAGE
    ranges = {way: Memory(pages) for way in WAYS}
    filler = Memory(pages * _FILLER)
    interleaved([*ranges.values(), filler], [0, 3, 1, 3, 2, *[3] * (_FILLER - 2)])
    before = Footprint.now()
    ranges[LOCKED].lock()
    with pin(ranges[PINNED].address, length) as held:
        if held.how != "pinned":
            raise LeftOut(f"memory cannot be pinned here: {held.why}")
        taken = Footprint.now() - before
        frames = {way: memory.frames() for way, memory in ranges.items()}
        filler.advise(mmap.MADV_DONTNEED)
        outcomes = event.move(ranges)
        found = {way: _compared(memory, frames[way]) for way, memory in ranges.items()}
    for way, outcome in outcomes.items():
        found[way]["outcome"] = outcome
    found[LOCKED]["locked_bytes"] = taken.locked_bytes
    found[PINNED]["pinned_bytes"] = taken.pinned_bytes
    return found


def _compared(memory: Memory, before: Sequence[int]) -> dict[str, Value]:
    after = memory.frames()
    moved = sum(now not in (0, then) for now, then in zip(after, before, strict=True))
    return {
        "pages": memory.pages,
        "moved": moved,
        "moved_share": moved / memory.pages,
        "lost": sum(not now for now in after),
        "changed": sum(not memory.is_as_touched(page) for page in range(memory.pages)),
        "shown": "\n".join(_shown(before, after)),
    }


def _shown(before: Sequence[int], after: Sequence[int]) -> list[str]:
    """Returns the first pages that moved, or the first ones of all."""
    moved = [page for page, frame in enumerate(before) if after[page] != frame]
    return [
        f"{page:,}  {before[page]:#x}  {after[page]:#x}"
        for page in (moved or range(_SHOWN))[:_SHOWN]
    ]
