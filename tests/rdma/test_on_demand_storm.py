# SPDX-License-Identifier: BSD-2-Clause
"""A region on demand in a storm: peers in other processes use it, the program changes it at random.

LIVEDMA_STORM_SECONDS: how long (60 for the full one).
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from loopback import ELSEWHERE, HERE, THERE, wait_until
from pairs import RIGHTS, End

from livedma.memory import hooks
from livedma.rdma import Device, OnDemandRegion
from mapped import (
    NONE,
    PAGE,
    READ,
    WRITE,
    advise,
    get,
    map_apart,
    map_at,
    move,
    protect,
    put,
    unmap,
    view,
)

SECONDS = float(os.environ.get("LIVEDMA_STORM_SECONDS", "6"))
PAGES = 64


class Peer:
    """One of the processes, and the end of its connection that is here."""

    def __init__(self, device: Device, address: str, base: int, words: int, seed: int) -> None:
        self.end, self.done, self.refused = End(device, size=PAGE), 0, 0
        code = f"import sys; sys.path[:0] = {sys.path!r}; import storm_peer; storm_peer.main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, address, str(base), str(words), str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.address = address
        self.is_working = False

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the peer is gone"
        return line.strip()

    def start(self, va: int, rkey: int) -> None:
        self.end.qp.close()
        self.end.cq.poll(4096)
        self.end.qp = self.end.pd.queue_pair("RC", self.end.cq)
        self.tell("connect", self.end.device.address, self.end.qp.number, va, rkey)
        self.end.connect_to(self.address, int(self.hear()), min_rnr_timer=1)
        self.tell("go")
        self.is_working = True

    def collect(self) -> None:
        """What it has to say; other ends than by a refusal are wrong."""
        done, status, *wrong = self.hear().split(maxsplit=2)
        self.is_working = False
        self.done += int(done)
        self.refused += status == "REM_ACCESS_ERR"
        assert status in ("SUCCESS", "REM_ACCESS_ERR") and not wrong, (status, wrong)

    def is_idle(self) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def stop(self) -> None:
        self.tell("stop")
        if self.is_working:
            self.collect()

    def end_process(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        self.process.stdout.close()


class Trouble:
    """What a program does to its memory. Whatever it takes away, it offers again."""

    def __init__(self, base: int, region: OnDemandRegion, seed: int) -> None:
        self.base, self.region = base, region
        self.random = random.Random(seed)
        self.kinds = [self.empty, self.unmap, self.move, self.protect, self.fork, self.prefetch]

    def make(self) -> None:
        first = self.random.randrange(PAGES)
        pages = self.random.randint(1, min(8, PAGES - first))
        self.random.choice(self.kinds)(first, pages)

    def pause(self) -> None:
        time.sleep(self.random.random() * 3e-4)

    def offer(self, first: int, pages: int) -> None:
        self.region.update_range(first * PAGE, pages * PAGE)

    def empty(self, first: int, pages: int) -> None:
        advise(self.base + first * PAGE, pages)

    def unmap(self, first: int, pages: int) -> None:
        """Somebody else gets the address for a while."""
        at, canary = self.base + first * PAGE, random.Random(first).randbytes(pages * PAGE)
        unmap(at, pages)
        map_at(at, pages)
        put(at, canary)
        self.pause()
        assert get(at, pages * PAGE) == canary
        unmap(at, pages)
        map_at(at, pages)
        self.offer(first, pages)

    def move(self, first: int, pages: int) -> None:
        try:
            there = move(self.base + first * PAGE, pages)
        except OSError:  # more than one mapping by now
            return
        before = get(there, pages * PAGE)
        self.pause()
        assert get(there, pages * PAGE) == before  # nobody writes behind it
        unmap(there, pages)
        map_at(self.base + first * PAGE, pages)
        self.offer(first, pages)

    def protect(self, first: int, pages: int) -> None:
        at = self.base + first * PAGE
        protect(at, pages, self.random.choice((NONE, READ)))
        if self.random.random() < 0.5:
            self.region.change_protection(first * PAGE, pages * PAGE)
        self.pause()
        protect(at, pages, READ | WRITE)

    def fork(self, first: int, pages: int) -> None:
        child = os.fork()
        if not child:
            put(self.base + first * PAGE, b"child")
            os._exit(0)
        self.pause()
        assert os.waitpid(child, 0)[1] == 0

    def prefetch(self, first: int, pages: int) -> None:
        self.region.prefetch(first * PAGE, pages * PAGE)


class Slow(hooks.Listener):
    """Hears more slowly than things happen, and slows nobody down."""

    CAUSES = frozenset(("removed", "unmapped", "remapped", "forked", "offered", "protected"))

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.seen: set[str] = set()
        self.is_over = False

    def hear(self, event: hooks.Event) -> None:
        self.numbers.append(event.number)
        self.seen.add(event.cause)
        if not self.is_over:
            time.sleep(2e-3)

    release = sync_range = invalidate_range = update_range = change_protection = hear

    def check(self, listening: hooks.Listening) -> None:
        """Nothing was lost, and all came in its order."""
        assert listening.released.wait(60) and not listening.lost
        assert self.numbers == sorted(set(self.numbers))
        assert self.seen >= self.CAUSES | {"closed"}


def has_ended() -> bool:
    """The pager's threads have, and that of hooks: the next ones get their stacks."""
    names = [thread.name for thread in threading.enumerate()]
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has ended meanwhile
            names.append(path.read_text().strip())
    return not {"ldma-watcher", "ldma-filler", "ldma-looker", "ldma-hooks"}.intersection(names)


def footprint() -> tuple[int, int, int]:
    """Pages in memory, descriptors, mappings."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    maps = len(Path("/proc/self/maps").read_text().splitlines())
    return resident, len(os.listdir("/proc/self/fd")), maps


def has_seen_all(region: OnDemandRegion, peers: list[Peer], slow: Slow, until: float) -> bool:
    """Everything has happened that a storm is for, or will not."""
    kinds = ("faults", "resolved", "failed", "vanished", "invalidations")
    seen = all(region.counters[kind] for kind in kinds) and sum(p.refused for p in peers) > 0
    seen = seen and slow.seen >= Slow.CAUSES
    return seen or time.monotonic() > until + 60


def storm(device: Device, peers: list[Peer], seconds: float, seed: int) -> dict[str, int]:
    pd = device.protection_domain()
    base = map_apart(PAGES)
    region = pd.register(view(base, PAGES * PAGE), *RIGHTS, mode="on demand")
    slow = Slow()
    listening = hooks.listen(view(base, PAGES * PAGE), slow, period=0.005)
    for peer in peers:
        peer.end.pd = pd
        peer.start(region.va, region.rkey)
    trouble = Trouble(base, region, seed)
    until = time.monotonic() + seconds
    while time.monotonic() < until or not has_seen_all(region, peers, slow, until):
        trouble.make()
        for peer in peers:
            if peer.is_idle():
                peer.collect()
                peer.start(region.va, region.rkey)
    for peer in peers:
        peer.stop()
        peer.end.qp.close()
    counters = region.counters
    slow.is_over = True
    listening.close()
    slow.check(listening)
    region.close()
    unmap(base, PAGES)
    pd.close()
    wait_until(has_ended)
    return counters


@pytest.fixture
def watchdog(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Ends a deadlock, which may hold the interpreter's lock, and shows where it was."""
    with capfd.disabled():
        seen = os.dup(2)
    faulthandler.dump_traceback_later(SECONDS + 120, exit=True, file=seen)
    yield
    faulthandler.cancel_dump_traceback_later()
    os.close(seen)


@pytest.mark.slow
@pytest.mark.usefixtures("watchdog")
def test_storm() -> None:
    seed = os.getpid()
    print(f"seed {seed}")
    with Device(HERE) as device:
        words = PAGES * PAGE // 8 // 2
        peers = [
            Peer(device, address, i * words, words, seed + i)
            for i, address in enumerate((THERE, ELSEWHERE))
        ]
        storm(device, peers, 0.5, seed)  # what is made once is made
        before = footprint()
        counters = storm(device, peers, SECONDS, seed)
        after = footprint()
        for peer in peers:
            peer.end_process()
        done, refused = sum(p.done for p in peers), sum(p.refused for p in peers)
        print(f"{done} round trips, {refused} refused, {counters}, {before} -> {after}")
        print(device.counters)
        assert done > 10 and refused > 0 and device.counters["page_naks"] > 0
        for name in ("faults", "resolved", "failed", "vanished", "invalidations"):
            assert counters[name] > 0, name
        assert after[1] == before[1]
        assert after[2] <= before[2] + 4
        assert after[0] <= before[0] + 1024  # 4 MiB: nothing that grows with time
