# SPDX-License-Identifier: BSD-2-Clause
"""Compares ways to map Receive buffers: a mapping for each, shards of several, or one slab."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from livedma.errors import NoRoomError
from livedma.lab.experiment.design import Column, Experiment, Form, Measures, Panel, Point, grid
from livedma.lab.experiment.footprint import Footprint
from livedma.lab.experiment.pool_answer import EACH, SLAB, answer
from livedma.lab.experiment.quantities import Value
from livedma.lab.experiment.rig import Rig
from livedma.lab.experiment.runs import Runs
from livedma.memory import Pool, Registrar, Source
from livedma.rdma import Device, ProtectionDomain

__all__ = ["Pools"]

BUFFER = 4096
MESSAGE = 1024

_SHARDS = {"16 KiB": 16 << 10, "64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20}
_DEPTH = 32
_MESSAGES = 10_000
_KEPT = 4  # one in so many buffers is still in use after the load has fallen
_ROUNDS = 4  # in each, all of those are returned, and others taken


class Pools(Experiment):
    name = "pool"
    question = "When does a pool of shards help Receive buffers, and when does it not?"
    factors = (
        Column("shard", "shard"),
        Column("buffers", "buffers each", "count"),
        Column("connections", "connections", "count"),
    )
    measures = (
        Column("mappings", "mappings", "count"),
        Column("setup_ns", "setup", "ns"),
        Column("teardown_ns", "teardown", "ns"),
        Column("mapped_bytes", "mapped", "bytes"),
        Column("resident_bytes", "in memory", "bytes"),
        Column("miss_share", "translation misses", "share"),
        Column("receive_ns", "cost per Receive", "ns"),
        Column("receive_bytes_per_s", "throughput", "bytes_per_s"),
        Column("given_back_share", "given back", "share"),
        Column("outcome", "outcome"),
    )
    method = (
        "Every connection has a pool with buffers of 4 KiB, as many as the column says. Its shards "
        "are mapped one by one into a window of the connection; with one slab, all at once. A "
        "mapping for each buffer is a region of its own, without a window. Setup is the time until "
        "all buffers of all connections are there, teardown until all are gone.",
        "Then a Receive is posted for every buffer, and peers SEND messages of 1 KiB on all "
        "connections. Throughput is theirs; the cost per Receive is what the host does for each: "
        "give the buffer back, take another one, post it. Both devices are in one process, each on "
        "a processor. A mapping is made in Python here, and a kernel's takes another time: compare "
        "the numbers of mappings, and times with each other.",
        "Given back is the share of the memory that a pool could give back when three of four "
        "buffers were returned at random and each of the others was exchanged for another one "
        f"{_ROUNDS} times, as happens when requests go on at a lower load.",
    )

    def points(self, form: Form) -> list[Point]:
        names = (EACH, "16 KiB", "64 KiB", "1 MiB", SLAB) if form == "quick" else _ALL
        buffers = (72, 256, 1024) if form == "quick" else (16, 72, 256, 1024, 4096)
        connections = (1, 16) if form == "quick" else (1, 4, 16, 64)
        return list(grid(shard=names, buffers=buffers, connections=connections))

    def run(self, point: Point) -> Measures:
        name, buffers, connections = (
            str(point["shard"]),
            *(int(str(point[each])) for each in ("buffers", "connections")),
        )
        shard = {EACH: BUFFER, SLAB: buffers * BUFFER, **_SHARDS}[name]
        with Rig(connections, depth=min(_DEPTH, buffers // 2), receives=buffers) as rig:
            try:
                return _measure(rig, _source(name, shard, buffers), shard, buffers)
            except NoRoomError as error:
                return {"outcome": f"refused: {error}"}

    def answer(self, runs: Runs) -> list[str]:
        return answer(runs)

    def panels(self, runs: Runs) -> Sequence[Panel]:
        most = runs.levels("connections")[-1]

        def panel(name: str, title: str, measure: str, is_log: bool = True) -> Panel:
            full = f"{title}, {most} connections"
            return Panel(name, full, "buffers", measure, "shard", {"connections": most}, is_log)

        return (
            panel("mappings", "Mappings", "mappings"),
            panel("setup", "Setup", "setup_ns"),
            panel("teardown", "Teardown", "teardown_ns"),
            panel("memory", "Memory", "resident_bytes"),
            panel("given-back", "Given back at a lower load", "given_back_share", is_log=False),
            panel("misses", "Translation misses", "miss_share", is_log=False),
            panel("receive", "Cost per Receive", "receive_ns", is_log=False),
            panel("throughput", "Throughput, 1 KiB", "receive_bytes_per_s", is_log=False),
        )


_ALL = (EACH, *_SHARDS, SLAB)

MakeSource = Callable[[Device, ProtectionDomain, ExitStack], Source]


def _source(name: str, shard: int, buffers: int) -> MakeSource:
    """Makes the source of a connection's memory; what has to be closed goes on the stack."""

    def make(device: Device, pd: ProtectionDomain, stack: ExitStack) -> Source:
        if name == EACH:
            return Registrar(device.engine, pd=pd)
        whole = -(-buffers * BUFFER // shard) * shard
        return stack.enter_context(pd.window(whole)).mapper()

    return make


def _measure(rig: Rig, make: MakeSource, shard: int, buffers: int) -> dict[str, Value]:
    before = Footprint.now()
    with ExitStack() as windows:
        began_ns = time.perf_counter_ns()
        pools = [
            Pool(make(rig.there, rig.pd, windows), BUFFER, shard, minimum=buffers, maximum=buffers)
            for _ in rig.receivers
        ]
        setup_ns = time.perf_counter_ns() - began_ns
        grown = Footprint.now() - before
        stats = [pool.stats for pool in pools]
        hits, misses = rig.there.engine.translations
        received = rig.receive(MESSAGE, _MESSAGES, pools, buffers)
        later_hits, later_misses = rig.there.engine.translations
        began_ns = time.perf_counter_ns()
        for pool in pools:
            pool.close()
        windows.close()
        teardown_ns = time.perf_counter_ns() - began_ns
    looked = later_hits + later_misses - hits - misses
    return {
        "mappings": sum(each.shards for each in stats),
        "setup_ns": setup_ns,
        "teardown_ns": teardown_ns,
        "mapped_bytes": sum(each.mapped_bytes for each in stats),
        "resident_bytes": max(grown.resident_bytes, 0),
        "miss_share": (later_misses - misses) / looked if looked else None,
        "receive_ns": received.refill_ns,
        "receive_bytes_per_s": MESSAGE * 1e9 / received.elapsed_ns,
        "given_back_share": _given_back(rig, make, shard, buffers),
        "outcome": "works",
    }


def _given_back(rig: Rig, make: MakeSource, shard: int, buffers: int) -> float:
    """Returns the share of a pool's memory that it gives back after the load has fallen."""
    chance = random.Random(1)
    with ExitStack() as stack:
        source = make(rig.there, rig.pd, stack)
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
