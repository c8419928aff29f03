# SPDX-License-Identifier: BSD-2-Clause
"""Compares ways to map Receive buffers: each, in shards, in one slab, or anew for each use."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from livedma._native.rdma import Engine
from livedma.lab.experiment import pool_ways
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
from livedma.lab.experiment.frames import PAGE, frames, pieces, scattered
from livedma.lab.experiment.pool_answer import answer
from livedma.lab.experiment.pool_ways import BUFFER, MESSAGE, PER_USE, PIECES, USUAL, WAYS
from livedma.lab.experiment.quantities import Value, quantity
from livedma.lab.experiment.rig import Received, Rig
from livedma.lab.experiment.runs import Runs
from livedma.memory import Pool, Window

__all__ = ["Pools"]

_DEPTH = 32
_MESSAGES = 2_000  # of a stream
_STREAMS = 25
_KEPT = 4  # one in so many buffers is still in use after the load has fallen
_ROUNDS = 4  # in each, all of those are returned, and others taken
_SPARE = 1.5
_LOOKED_AT = 4  # connections whose shards' frames are looked at


class Pools(Experiment):
    name = "pool"
    question = "When does a pool of shards help Receive buffers, and when does it not?"
    factors = (
        Column("buffers", "buffers each", "count"),
        Column("connections", "connections", "count"),
        Column("way", "mapping of"),
    )
    within = ("way",)
    measures = (
        Column("mappings", "mappings", "count"),
        Column("pieces", "pieces", "count"),
        Column("frame_runs", "physical pieces", "count"),
        Column("scattered_runs", "physical, scattered", "count"),
        Column("mapped_bytes", "memory", "bytes"),
        Column("memory_ns", "finding memory", "ns"),
        Column("map_ns", "mapping it", "ns"),
        Column("setup_ns", "set-up, both", "ns"),
        Column("unmap_ns", "unmapping", "ns"),
        Column("miss_share", "translation misses", "share"),
        Column("host_ns", "host, per Receive", "ns"),
        Column("device_ns", "device, per Receive", "ns"),
        Column("receive_ns", "cost per Receive", "ns"),
        Column("refill_ns", "host, on the wire", "ns"),
        Column("receive_bytes_per_s", "throughput", "bytes_per_s"),
        Column("given_back_share", "given back", "share"),
        Column("outcome", "outcome"),
    )
    brief = ("mappings", "map_ns", "miss_share", "host_ns", "device_ns", "receive_bytes_per_s")
    method = (
        "Every connection has a window and as many Receive buffers of 4 KiB as the column says. "
        "The ways differ in nothing but what one mapping holds: one buffer, a shard, or all (one "
        "slab). Window, memory, pool and code are the same, and all of it is C: finding and "
        "clearing the memory is timed apart from mapping it (reserving addresses, linking, "
        "syncing, and putting the buffers into the pool). Mappings lie in memory in the opposite "
        "order of their addresses, so no two are one piece by chance.",
        '"64 KiB in pieces" is a shard for which no memory in one piece was left: it comes in '
        "pages, none beside the next, which one mapping puts side by side for the device, as an "
        "IOMMU does, or a fast-register region over single pages that is made once. "
        '"Each use" is registration for each I/O: a buffer is linked and synced when it is posted, '
        "and unlinked when it comes back; set-up makes no mapping.",
        "Without a wire: all buffers are posted; messages of 1 KiB come on the connections in "
        "turn, 8 at a time. The device's part is to translate the address and copy the message; "
        "the host's part is to return the buffers, take others and post them (each use: and to map "
        "and unmap them). The ways take turns within a run, every few milliseconds. Misses are "
        "those of the device's translation cache, which it counts.",
        "On the wire: peers SEND the same messages by UDP on loopback, both devices in one "
        "process, each on a processor, all ways by turns. Throughput is theirs, in the fastest of "
        f"{_STREAMS} streams: other programs make a stream slower, never faster. Times of set-up "
        "are processor time; those of Receives are medians of many short turns.",
        "Physical pieces: of how many runs of neighbouring physical frames the memory of a shard "
        "of 64 KiB is, as root can see; first in memory as the machine has it, then (scattered) "
        "after every second page of a large range was given back, so that memory is free in single "
        "pages.",
        "Given back is the share of the memory that a pool could give back when three of four "
        "buffers were returned at random and each of the others was exchanged for another one "
        f"{_ROUNDS} times, as happens when requests go on at a lower load.",
    )
    limits = (
        "The device is software. Its translation cache has 256 lines for short pieces; a line "
        "holds up to 32 KiB that are one piece of memory, and stretches of 32 KiB share it. So "
        "buffers that are pieces of their own miss even where they are few. An RNIC's cache has "
        "other sizes, and on a miss it reads host memory over PCIe, where this device reads "
        "its own table. Carry the counts over (mappings, misses), not the nanoseconds.",
        "Mapping here is the device's own table. A kernel's dma_map_single has an allocator of "
        "addresses and an IOMMU's page table besides, and each unmapping may wait for the IOMMU: "
        "there a mapping costs more, and saving mappings is worth more.",
    )
    point_limit_s = 120.0

    def points(self, form: Form) -> list[Point]:
        buffers = (72, 256, 1024) if form == "quick" else (16, 72, 256, 1024)
        connections = (1, 16) if form == "quick" else (1, 4, 16, 64)
        return list(grid(buffers=buffers, connections=connections))

    def run(self, point: Point) -> Measures:
        return self._measure(point, [str(point["way"])])[0][1]

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        return self._measure(point, list(WAYS))

    def _measure(self, point: Point, names: Sequence[str]) -> list[tuple[Point, Measures]]:
        buffers, connections = (int(str(point[name])) for name in ("buffers", "connections"))
        needed = buffers * connections * BUFFER * len(names) * _SPARE
        if available_bytes() < needed:
            raise LeftOut(f"{quantity(needed, 'bytes')} of memory are not available: free some")
        try:
            alone = pool_ways.measure(names, buffers, connections)
            if USUAL in alone:
                alone[USUAL] |= _contiguity(buffers, min(connections, _LOOKED_AT))
        except OSError as error:
            return [({"way": name}, {"outcome": f"refused: {error.strerror}"}) for name in names]
        wired = _on_the_wire(names, buffers, connections)
        return [
            (
                {"way": name},
                {
                    **alone[name],
                    **wired[name],
                    "given_back_share": _given_back(name, buffers),
                    "outcome": "works",
                },
            )
            for name in names
        ]

    def answer(self, runs: Runs) -> list[str]:
        return answer(runs)

    def panels(self, runs: Runs) -> Sequence[Panel]:
        most = runs.levels("connections")[-1]

        def panel(name: str, title: str, measure: str, is_log: bool = True) -> Panel:
            full = f"{title}, {most} connections"
            return Panel(name, full, "buffers", measure, "way", {"connections": most}, is_log)

        return (
            panel("mappings", "Mappings", "mappings"),
            panel("map", "Mapping alone", "map_ns"),
            panel("misses", "Translation misses", "miss_share", is_log=False),
            panel("device", "Device, per Receive", "device_ns", is_log=False),
            panel("host", "Host, per Receive", "host_ns", is_log=False),
            panel("throughput", "Throughput on the wire", "receive_bytes_per_s", is_log=False),
            panel("given-back", "Given back", "given_back_share", is_log=False),
        )


def _on_the_wire(
    names: Sequence[str], buffers: int, connections: int
) -> dict[str, dict[str, Value]]:
    """Receives in all ways by turns, each with devices and connections of its own."""
    found: dict[str, list[Received]] = {name: [] for name in names}
    with ExitStack() as stack:
        receives = {}
        for number, name in enumerate(names):
            depth = min(_DEPTH, buffers // 2)
            rig = stack.enter_context(
                Rig(connections, depth=depth, receives=buffers, number=number)
            )
            engine = rig.there.engine
            pools = [pool_ways.mapped(name, engine, buffers, rig.pd) for _ in rig.receivers]
            receives[name] = stack.enter_context(rig.receiving(MESSAGE, _MESSAGES, pools, buffers))
        for turn in range(_STREAMS):
            for name in names if turn % 2 else names[::-1]:
                found[name].append(receives[name]())
    # What other programs do makes a stream slower, never faster.
    best = {name: min(streams, key=lambda one: one.elapsed_ns) for name, streams in found.items()}
    return {
        name: {
            "refill_ns": one.refill_ns,
            "receive_bytes_per_s": MESSAGE * 1e9 / one.elapsed_ns,
        }
        for name, one in best.items()
    }


def _contiguity(buffers: int, connections: int) -> dict[str, Value]:
    """Counts the runs of frames in a shard: in memory as it is, and in scattered memory."""

    def runs() -> float:
        engine = Engine()
        each = [pool_ways.mapped(USUAL, engine, buffers) for _ in range(connections)]
        pages = WAYS[USUAL].mapping_bytes // PAGE
        numbers = [frames(one.address, one.length // PAGE) for one in each]
        counts = [
            pieces(found[first : first + pages])
            for found in numbers
            for first in range(0, len(found), pages)
        ]
        for one in each:
            one.close()
        return statistics.mean(counts)

    try:
        as_found = runs()
        with scattered(2 * buffers * connections * BUFFER):
            return {"frame_runs": as_found, "scattered_runs": runs()}
    except LeftOut:
        return {}  # physical frames are shown to root alone


def _given_back(name: str, buffers: int) -> float | None:
    """Returns the share of a pool's memory that it gives back after the load has fallen."""
    if name in (PIECES, PER_USE):
        return None  # the one is a shard of 64 KiB, the other frees addresses and no memory
    chance = random.Random(1)
    shard = WAYS[name].mapping_bytes or buffers * BUFFER
    whole = -(-buffers * BUFFER // shard) * shard
    with ExitStack() as stack:
        source = stack.enter_context(Window(Engine(), whole)).mapper()
        with Pool(source, BUFFER, shard, maximum=buffers) as pool:
            taken = [pool.take(timeout=1) for _ in range(buffers)]
            before = pool.stats.mapped_bytes
            chance.shuffle(taken)
            for buffer in taken[buffers // _KEPT :]:
                buffer.release()
            taken = taken[: buffers // _KEPT]
            for _ in range(_ROUNDS):
                chance.shuffle(taken)
                for place, buffer in enumerate(taken):
                    buffer.release()
                    taken[place] = pool.take(timeout=1)
            pool.trim()
            after = pool.stats.mapped_bytes
            for buffer in taken:
                buffer.release()
    return 1 - after / before
