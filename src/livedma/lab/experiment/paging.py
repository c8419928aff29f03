# SPDX-License-Identifier: BSD-2-Clause
"""Compares pinned regions with regions on demand: the cost of registering and of accesses, and the
memory that each keeps."""

from __future__ import annotations

import mmap
import multiprocessing
import statistics
import time
from collections.abc import Sequence

from livedma.errors import LivedmaError
from livedma.lab.experiment.confinement import Confinement, confinement
from livedma.lab.experiment.design import (
    Column,
    Experiment,
    Form,
    LeftOut,
    Measures,
    Panel,
    Point,
    grid,
)
from livedma.lab.experiment.footprint import Footprint, available_bytes
from livedma.lab.experiment.paging_answer import (
    FREE,
    PINNED,
    PREFETCHED,
    TIGHT,
    WAYS,
    answer,
)
from livedma.lab.experiment.quantities import Value, quantity
from livedma.lab.experiment.rig import Rig
from livedma.lab.experiment.runs import Runs
from livedma.rdma.memory import MemoryRegion, OnDemandRegion

__all__ = ["Paging"]

_PAGE, _LARGE = 4096, 65536
_SAMPLE_PAGES = 256  # their first and later access is timed, one at a time
_OVERHEAD_BYTES = 96 << 20  # of the process itself, with both devices
_LATER = 5  # times that accesses are repeated; their median counts
_SPARE = 1.5
_RIGHTS = ("remote_read", "remote_write")


class Paging(Experiment):
    name = "paging"
    question = "What does memory on demand cost against pinned memory, and when does it pay?"
    factors = (
        Column("way", "way"),
        Column("region_bytes", "region", "bytes"),
        Column("limit", "memory limit"),
    )
    measures = (
        Column("register_ns", "register", "ns"),
        Column("prefetch_ns", "prefetch", "ns"),
        Column("first_ns", "first access", "ns"),
        Column("later_ns", "later access", "ns"),
        Column("first_bytes_per_s", "first pass", "bytes_per_s"),
        Column("later_bytes_per_s", "later passes", "bytes_per_s"),
        Column("rnr_naks", "RNR NAKs", "count"),
        Column("pinned_bytes", "pinned", "bytes"),
        Column("resident_bytes", "in memory", "bytes"),
        Column("outcome", "outcome"),
    )
    method = (
        "A region is registered over fresh anonymous memory that was never touched. A peer then "
        f"writes 4 KiB to each of {_SAMPLE_PAGES} pages, one after the other (first access), and "
        f"{_LATER} times again (later access); then 64 KiB at a time, 16 under way, to all of what "
        f"it uses (first pass), and {_LATER} times more (later passes). Both devices are in one "
        "process, each on a processor.",
        "Pinned and in memory are what the process has more of at the end than before it "
        "registered: VmPin, or VmLck where pages can only be locked, and VmRSS.",
        "Under a memory limit the process is in a control group that lets it have half of the "
        "region, and the peer uses a quarter of the region: enough for a peer that needs "
        "memory only where it is used. Without a limit the peer uses all of it.",
    )

    def points(self, form: Form) -> list[Point]:
        shifts = (20, 23, 26) if form == "quick" else range(20, 31, 2)
        tight = (28,) if form == "quick" else (28, 30)
        return [
            *grid(way=WAYS, region_bytes=[1 << n for n in shifts], limit=(FREE,)),
            *grid(way=WAYS, region_bytes=[1 << n for n in tight], limit=(TIGHT,)),
        ]

    def run(self, point: Point) -> Measures:
        size, way = int(str(point["region_bytes"])), str(point["way"])
        if available_bytes() < size * _SPARE:
            raise LeftOut(f"{quantity(size, 'bytes')} of memory are not available: free some")
        if point["limit"] == FREE:
            return {**_measure(way, size, size), "outcome": "works"}
        with confinement(size // 2 + _OVERHEAD_BYTES) as group:
            return _confined(group, way, size)

    def answer(self, runs: Runs) -> list[str]:
        return answer(runs)

    def panels(self, runs: Runs) -> Sequence[Panel]:
        x, free = "region_bytes", {"limit": FREE}
        return (
            Panel("register", "Registering", x, "register_ns", "way", free),
            Panel("first", "First access of a page", x, "first_ns", "way", free),
            Panel("later", "Later accesses of a page", x, "later_ns", "way", free, is_log=False),
            Panel("first-pass", "First pass over the region", x, "first_bytes_per_s", "way", free),
            Panel(
                "later-passes", "Later passes", x, "later_bytes_per_s", "way", free, is_log=False
            ),
            Panel("pinned", "Pinned memory", x, "pinned_bytes", "way", free),
        )


def _measure(way: str, size: int, used: int) -> dict[str, Value]:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with Rig(depth=16) as rig:
        before = Footprint.now()
        began_ns = time.perf_counter_ns()
        region: MemoryRegion | OnDemandRegion
        if way == PINNED:
            region = rig.pd.register(memory, *_RIGHTS)
        else:
            region = rig.pd.register(memory, *_RIGHTS, mode="on demand")
        found: dict[str, Value] = {"register_ns": time.perf_counter_ns() - began_ns}
        if way == PREFETCHED and isinstance(region, OnDemandRegion):
            began_ns = time.perf_counter_ns()
            region.prefetch(0, used)
            found["prefetch_ns"] = time.perf_counter_ns() - began_ns
        with rig.serving():
            found |= _traffic(rig, region, used)
        grown = Footprint.now() - before
        found |= {
            "pinned_bytes": max(grown.pinned_bytes, grown.locked_bytes, 0),
            "resident_bytes": max(grown.resident_bytes, 0),
            "rnr_naks": sum(qp.counters["rcvd_rnr_err"] for qp in rig.senders),
        }
        region.close()
    memory.close()
    return found


def _traffic(rig: Rig, region: MemoryRegion | OnDemandRegion, used: int) -> dict[str, Value]:
    pages = min(_SAMPLE_PAGES, used // _PAGE // 2)

    def touch() -> float:
        spent_ns = rig.stream(
            "WRITE", _PAGE, pages, va=region.va, rkey=region.rkey, span=pages * _PAGE, depth=1
        )
        return spent_ns / pages

    def sweep(messages: int) -> float:
        spent_ns = rig.stream("WRITE", _LARGE, messages, va=region.va, rkey=region.rkey, span=used)
        return messages * _LARGE * 1e9 / spent_ns

    once = used // _LARGE
    return {
        "first_ns": touch(),
        "later_ns": statistics.median(touch() for _ in range(_LATER)),
        "first_bytes_per_s": sweep(once),
        "later_bytes_per_s": statistics.median(sweep(max(once, 256)) for _ in range(_LATER)),
    }


def _confined(group: Confinement, way: str, size: int) -> Measures:
    """Measures in a process of its own, which the system may kill."""
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe(duplex=False)

    def attempt() -> None:
        group.enter()
        try:
            its.send({**_measure(way, size, size // 4), "outcome": "works"})
        except (LivedmaError, OSError, MemoryError) as error:
            its.send({"outcome": f"refused: {str(error).partition(':')[0]}"})

    process = context.Process(target=attempt)
    process.start()
    its.close()
    try:
        found: dict[str, Value] = ours.recv()
    except EOFError:
        found = {"outcome": "killed by the system: out of memory"}
    process.join()
    return found
