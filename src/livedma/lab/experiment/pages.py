# SPDX-License-Identifier: BSD-2-Clause
"""Asks what huge pages gain: granules of 4 KiB against granules of 2 MiB, by size of the region."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

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
from livedma.lab.experiment.footprint import available_bytes
from livedma.lab.experiment.huge_pages import HUGE_BYTES, reserved
from livedma.lab.experiment.quantities import Value, quantity, times
from livedma.lab.experiment.rig import Rig
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.wording import is_clear, relation
from livedma.memory import Window

__all__ = ["Pages"]

_PAGE = 4096
_SMALL, _LARGE = 4096, 65536
_SPARE = 1.25  # of the memory that a point takes
_STREAMS = 5  # of each size of message; their median counts
_MANY_MISSES = 0.1
_RIGHTS = ("remote_read", "remote_write")
_FINE, _HUGE = {"granule_bytes": _PAGE}, {"granule_bytes": HUGE_BYTES}


class Pages(Experiment):
    name = "pages"
    question = "What do granules of 2 MiB give over granules of 4 KiB, and from which size on?"
    factors = (
        Column("granule_bytes", "granule", "bytes"),
        Column("region_bytes", "region", "bytes"),
    )
    measures = (
        Column("descriptors", "descriptors", "count"),
        Column("map_ns", "time to map", "ns"),
        Column("link_ns", "tables alone", "ns"),
        Column("miss_share", "translation misses", "share"),
        Column("small_bytes_per_s", "WRITE 4 KiB", "bytes_per_s"),
        Column("large_bytes_per_s", "WRITE 64 KiB", "bytes_per_s"),
        Column("backing", "backed by"),
    )
    method = (
        "A window as large as the region is mapped at once, with fresh memory: in the time to map "
        "the system finds and clears that memory, and it is linked and synced. What the tables "
        "take of that is measured alone, by linking the same memory in a second window.",
        "A peer then writes messages of 4 KiB, and of 64 KiB, to places all over the region, as if "
        "at random, 64 under way; both devices are in one process, each on a processor. Misses are "
        "those of the device's translation cache, during the messages of 4 KiB. Descriptors are "
        "the entries that a device needs for the memory as it came.",
        "Huge pages are set aside beforehand if that is allowed, and given back; else transparent "
        "ones are asked for. The last column says what came.",
    )
    point_limit_s = 120.0

    def points(self, form: Form) -> list[Point]:
        shifts = (24, 28, 32) if form == "quick" else range(22, 33, 2)
        sizes = [1 << shift for shift in shifts]
        return list(grid(granule_bytes=(_PAGE, HUGE_BYTES), region_bytes=sizes))

    def around(self, form: Form) -> AbstractContextManager[None]:
        return _set_aside(max(int(str(point["region_bytes"])) for point in self.points(form)))

    def run(self, point: Point) -> Measures:
        size, granule = (int(str(point[name])) for name in ("region_bytes", "granule_bytes"))
        if granule == _PAGE and available_bytes() < size * _SPARE:
            raise LeftOut(f"{quantity(size, 'bytes')} of memory are not available: free some")
        with Rig(depth=64) as rig, _window(rig, size, granule) as window:
            began_ns = time.perf_counter_ns()
            part = window.extend(size)
            map_ns = time.perf_counter_ns() - began_ns
            return {
                "map_ns": map_ns,
                "link_ns": _link_ns(rig, part.block.mapping, size, granule),
                "descriptors": window.statistics().descriptors,
                "backing": part.block.kind,
                **_traffic(rig, window, size),
            }

    def answer(self, runs: Runs) -> list[str]:
        at_fine, at_huge = (runs.where(**level).levels("region_bytes") for level in (_FINE, _HUGE))
        sizes = [size for size in at_fine if size in at_huge]
        if not sizes:
            return ["No size could be measured with both granules."]
        return [
            _headline(runs, sizes),
            *_descriptors(runs, sizes[-1]),
            *_misses(runs, sizes),
            *_times(runs, sizes[-1]),
            _backings(runs),
        ]

    def panels(self, runs: Runs) -> Sequence[Panel]:
        def panel(name: str, title: str, measure: str, is_log: bool = True) -> Panel:
            return Panel(name, title, "region_bytes", measure, "granule_bytes", is_log=is_log)

        return (
            panel("descriptors", "Descriptors", "descriptors"),
            panel("misses", "Translation misses", "miss_share", is_log=False),
            panel("map", "Mapping, with fresh memory", "map_ns"),
            panel("link", "Mapping, tables alone", "link_ns"),
            panel("small", "WRITE of 4 KiB, at random", "small_bytes_per_s", is_log=False),
            panel("large", "WRITE of 64 KiB, at random", "large_bytes_per_s", is_log=False),
        )


@contextmanager
def _set_aside(length_bytes: int) -> Iterator[None]:
    """Sets huge pages aside, but leaves room for as much memory in small pages."""
    room = int(available_bytes() / _SPARE) - length_bytes
    with reserved(min(length_bytes, max(room, 0))):
        yield


def _window(rig: Rig, size: int, granule: int) -> Window:
    return rig.pd.window(size, *_RIGHTS, granule=granule)


def _link_ns(rig: Rig, memory: Any, size: int, granule: int) -> int:
    """Returns the time to link memory that exists already."""
    with _window(rig, size, granule) as window:
        began_ns = time.perf_counter_ns()
        window.link(0, memory)
        window.sync(0, size)
        return time.perf_counter_ns() - began_ns


def _traffic(rig: Rig, window: Window, size: int) -> dict[str, float]:
    def rate(message: int, iterations: int) -> float:
        def stream() -> float:
            spent_ns = rig.stream(
                "WRITE", message, iterations, va=window.va, rkey=window.key, span=size
            )
            return message * iterations * 1e9 / spent_ns

        return statistics.median(stream() for _ in range(_STREAMS))

    with rig.serving():
        rate(_SMALL, 1000)
        hits, misses = rig.there.engine.translations
        small = rate(_SMALL, 16_000)
        later_hits, later_misses = rig.there.engine.translations
        large = rate(_LARGE, 1_600)
    looked, missed = later_hits + later_misses - hits - misses, later_misses - misses
    return {
        "small_bytes_per_s": small,
        "large_bytes_per_s": large,
        "miss_share": missed / looked if looked else 0.0,
    }


def _headline(runs: Runs, sizes: Sequence[Value]) -> str:
    ratios = {
        size: runs.ratio("small_bytes_per_s", _HUGE, _FINE, region_bytes=size) for size in sizes
    }
    faster = [size for size, r in ratios.items() if r is not None and is_clear(r) and r.median > 1]
    # the size from which on all are faster
    onward = [size for i, size in enumerate(sizes) if faster[-len(sizes) + i :] == sizes[i:]]
    at = quantity(sizes[-1], "bytes")
    speed = relation(ratios[sizes[-1]], "faster", "slower")
    if onward:
        return (
            f"2 MiB granules make random access faster from {quantity(onward[0], 'bytes')} on: "
            f"WRITEs of 4 KiB at {at} are {speed} than with 4 KiB granules."
        )
    where = ", ".join(quantity(size, "bytes") for size in faster)
    but = f"only at {where}" if faster else "at no size measured"
    return (
        f"2 MiB granules make random WRITEs of 4 KiB clearly faster {but} ({at}: {speed}); "
        "what they save are descriptors and time to map."
    )


def _descriptors(runs: Runs, size: Value) -> Iterator[str]:
    fine, huge = (runs.median("descriptors", region_bytes=size, **g) for g in (_FINE, _HUGE))
    if fine and huge:
        yield (
            f"{quantity(size, 'bytes')} take {quantity(fine, 'count')} descriptors with 4 KiB "
            f"granules and {quantity(huge, 'count')} with 2 MiB granules: {times(fine / huge)}."
        )


def _misses(runs: Runs, sizes: Sequence[Value]) -> Iterator[str]:
    for level, name in ((_FINE, "4 KiB"), (_HUGE, "2 MiB")):
        shares = {size: runs.median("miss_share", region_bytes=size, **level) for size in sizes}
        many = [size for size, share in shares.items() if share and share > _MANY_MISSES]
        worst = quantity(max(share or 0.0 for share in shares.values()), "share")
        if many:
            yield (
                f"With {name} granules the translation cache is too small from "
                f"{quantity(many[0], 'bytes')} on: up to {worst} of accesses miss."
            )
        else:
            yield f"With {name} granules at most {worst} of accesses miss, at any size measured."


def _times(runs: Runs, size: Value) -> Iterator[str]:
    whole, tables = (
        runs.ratio(name, _FINE, _HUGE, region_bytes=size) for name in ("map_ns", "link_ns")
    )
    fine, huge, fine_tables, huge_tables = (
        runs.median(name, region_bytes=size, **level)
        for name in ("map_ns", "link_ns")
        for level in (_FINE, _HUGE)
    )
    if whole and tables and fine and fine_tables:
        most = "memory" if fine_tables < fine / 2 else "tables"
        yield (
            f"Mapping {quantity(size, 'bytes')} takes {quantity(fine, 'ns')} in 4 KiB granules and "
            f"{quantity(huge, 'ns')} in 2 MiB granules ({times(whole.median)}), most of it for "
            f"{most}: tables alone take {quantity(fine_tables, 'ns')} and "
            f"{quantity(huge_tables, 'ns')} ({times(tables.median)})."
        )


def _backings(runs: Runs) -> str:
    kinds = {str(row.measures["backing"]) for row in runs.where(**_HUGE) if not row.problem}
    return f"2 MiB granules were backed by {' and '.join(sorted(kinds))}."
