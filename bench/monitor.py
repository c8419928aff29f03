# SPDX-License-Identifier: BSD-2-Clause
"""What the session monitor costs: a load on our server over a veth pair, with it and without.

With: programs on the server's interface, and ten snapshots a second. One load runs all the time;
the monitor is attached and detached beside it, and what is compared are neighbours of a tenth of a
second, so that a noisy moment meets both.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import truediv
from pathlib import Path

from bench.pair import CROWD, Link, links, loaded, serving
from bench.report import Line, per_second
from livedma.lab.driver import Driver
from livedma.monitor import Monitor

PAIRS = 200  # of parts, with and without
PART_S = 0.1
CROWD_S = 3
SNAPSHOTS_PER_S = 10


@dataclass(frozen=True)
class Work:
    """A load, and what of its rate is to be left while it is monitored."""

    name: str
    options: tuple[str, ...]
    bar: float


WORKS = (
    Work(
        "4 KiB random read, 1 x 32, monitored",
        ("--depth=32", "--size=4KiB", "--file-size=64MiB"),
        0.95,
    ),
    Work(
        "1 MiB sequential read, 1 x 4, monitored",
        ("--depth=4", "--size=1MiB", "--file-size=64MiB", "--pattern=sequential"),
        0.97,
    ),
)


class _Watch:
    """Looks at a server's interface from a thread, while it is attached."""

    def __init__(self, link: Link) -> None:
        assert link.hosts is not None
        self._host, self._end, self._lock = link.hosts[1], threading.Event(), threading.Lock()
        with self._host.inside():
            self._monitor = Monitor([self._host.iface])
        self._is_attached = True
        self.cpu_s: list[float] = []  #: of each snapshot
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(1 / SNAPSHOTS_PER_S):
            with self._lock:
                if self._is_attached:
                    before_s = time.thread_time()
                    self._monitor.snapshot()
                    self.cpu_s.append(time.thread_time() - before_s)

    def switch(self, is_attached: bool) -> None:
        with self._lock, self._host.inside():
            if is_attached != self._is_attached:
                self._monitor.attach() if is_attached else self._monitor.detach()
            self._is_attached = is_attached

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._monitor.close()


def _rate(driver: Driver) -> float:
    """Operations a second, for a while from now on."""
    driver.ask("interval")
    time.sleep(PART_S)
    return float(driver.ask("interval")["operations_per_s"])


def lines(directory: Path) -> Iterator[Line]:
    options = ("--credits=256", "--policy=static", "--monitor=server")
    with links() as (_, link), serving(link, directory / "monitored", *options):
        for work in WORKS:
            yield _compared(link, work)
        yield _snapshots(link)


def _compared(link: Link, work: Work) -> Line:
    rates: dict[bool, list[float]] = {True: [], False: []}
    with _Watch(link) as watch, loaded(link, 1, *work.options) as driver:
        for pair in range(PAIRS):
            # Which of them comes first changes, for what drifts.
            for is_watched in (pair % 2 == 0, pair % 2 == 1):
                watch.switch(is_watched)
                rates[is_watched].append(_rate(driver))
    ratio = statistics.median(map(truediv, rates[True], rates[False]))
    shown = [per_second(statistics.median(rates[is_watched])) for is_watched in (True, False)]
    return Line(work.name, shown[0], f"without {shown[1]}", ratio, work.bar)


def _snapshots(link: Link) -> Line:
    """Of a thousand sessions that all do something."""
    with _Watch(link) as watch, loaded(link, 1000, *CROWD):
        time.sleep(CROWD_S)
    # The busiest half: before and after, sessions come and go.
    busy = sorted(watch.cpu_s)[len(watch.cpu_s) // 2 :]
    mean_s = sum(busy) / len(busy)
    return Line(
        "10 snapshots/s of 1,000 sessions",
        f"{mean_s * 1e3:.2f} ms each",
        "a core",
        mean_s * SNAPSHOTS_PER_S,
        0.02,
        is_cost=True,
    )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name:
        for line in lines(Path(name)):
            print(line, flush=True)
