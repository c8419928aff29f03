# SPDX-License-Identifier: BSD-2-Clause
"""Says what memory on demand costs, and when it pays."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.lab.experiment.quantities import quantity, times
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.wording import is_clear, relation

__all__ = ["FREE", "ON_DEMAND", "PINNED", "PREFETCHED", "TIGHT", "WAYS", "answer"]

PINNED, ON_DEMAND, PREFETCHED = "pinned", "on demand", "on demand, prefetched"
WAYS = (PINNED, ON_DEMAND, PREFETCHED)
FREE, TIGHT = "none", "half the region"


def answer(runs: Runs) -> list[str]:
    free = runs.where(limit=FREE)
    sizes = free.levels("region_bytes")
    if not sizes:
        return ["Nothing could be measured without a memory limit."]
    here, at = free.where(region_bytes=sizes[-1]), quantity(sizes[-1], "bytes")
    return [
        *_headline(here, at),
        *_under_pressure(runs.where(limit=TIGHT)),
        *(_figures(here, way, at) for way in here.levels("way")),
        *_prefetching(here, at),
        *_keeping(here, at),
    ]


def _headline(here: Runs, at: str) -> Iterator[str]:
    pinned, on_demand = {"way": PINNED}, {"way": ON_DEMAND}
    register = here.ratio("register_ns", pinned, on_demand)
    first = here.ratio("first_ns", on_demand, pinned)
    later = here.ratio("later_bytes_per_s", pinned, on_demand)
    if register is None or first is None or later is None:
        return
    slower = is_clear(later) and later.median > 1
    price = (
        f"later passes are {relation(later, 'slower', 'faster')}" if slower else "nothing later on"
    )
    if is_clear(first) and first.median > 1:
        once = f"a first access of a page takes {relation(first, 'longer', 'less')}"
        cost = f"{once}, and {price}" if slower else f"{once}, and it costs {price}"
    else:
        cost = f"first accesses are no slower, and {price}" if slower else "it costs nothing more"
    yield (
        f"Memory on demand is registered {relation(register, 'faster', 'slower')} than pinned "
        f"memory at {at}; {cost}."
    )


def _figures(here: Runs, way: object, at: str) -> str:
    register, first, later = (
        quantity(here.median(name, way=str(way)), "ns")
        for name in ("register_ns", "first_ns", "later_ns")
    )
    passes = [
        quantity(here.median(name, way=str(way)), "bytes_per_s")
        for name in ("first_bytes_per_s", "later_bytes_per_s")
    ]
    return (
        f"{str(way).capitalize()}, {at}: registering {register}; an access of 4 KiB {first} the "
        f"first time and {later} later; the first pass {passes[0]}, later ones {passes[1]}."
    )


def _prefetching(here: Runs, at: str) -> Iterator[str]:
    first = here.ratio("first_ns", {"way": ON_DEMAND}, {"way": PREFETCHED})
    pinning = here.median("register_ns", way=PINNED)
    ahead = here.median("prefetch_ns", way=PREFETCHED)
    without, with_it = (here.median("rnr_naks", way=way) for way in (ON_DEMAND, PREFETCHED))
    if first is None or not pinning or ahead is None:
        return
    yield (
        f"After a prefetch first accesses are {relation(first, 'faster', 'slower')}, and peers "
        f"were asked to come again {quantity(with_it, 'count')} instead of "
        f"{quantity(without, 'count')} times; it takes {quantity(ahead, 'ns')} for {at}, "
        f"{times(ahead / pinning)} the time of pinning."
    )


def _keeping(here: Runs, at: str) -> Iterator[str]:
    pinned, on_demand = (here.median("pinned_bytes", way=way) for way in (PINNED, ON_DEMAND))
    if pinned is not None and on_demand is not None:
        yield (
            f"Of {at}, {quantity(pinned, 'bytes')} cannot be moved or taken back when pinned, "
            f"{quantity(on_demand, 'bytes')} on demand."
        )


def _under_pressure(tight: Runs) -> Iterator[str]:
    for size in tight.levels("region_bytes"):
        here = tight.where(region_bytes=size)
        outcomes = {
            str(way): dict.fromkeys(
                str(row.measures.get("outcome", row.problem)) for row in here.where(way=way)
            )
            for way in here.levels("way")
        }
        told = "; ".join(f"{way} - {' or '.join(found)}" for way, found in outcomes.items())
        yield (
            f"With memory for half of {quantity(size, 'bytes')}, of which the peer uses a quarter: "
            f"{told}."
        )
