"""What the session monitor costs: a load on our server over a veth pair, with it and without.

With: programs on the server's interface, and ten snapshots a second. It is attached and detached
in turn, each second of one load, so that a noisy moment meets both.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.pair import Link, links, serving
from bench.report import Line, per_second
from livedma.monitor import Monitor

PAIRS = 10  # of seconds, with and without
CROWD_SECONDS = 3
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
_CROWD = ("--sessions=1000", "--depth=1", "--size=4KiB", "--file-size=64KiB")


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

    def switch(self) -> None:
        with self._lock, self._host.inside():
            self._is_attached = not self._is_attached
            self._monitor.attach() if self._is_attached else self._monitor.detach()

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._monitor.close()


def _load(link: Link, seconds: int, *options: str) -> Iterator[float]:
    """Operations a second, each second."""
    argv = ["livedma", "load", link.address, "--json", "--no-verify", f"--seconds={seconds}"]
    with subprocess.Popen(
        link.command(0, [*argv, *options]), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said = json.loads(line)
                if "at_s" in said:
                    yield float(said["operations_per_s"])
                elif said["errors"]:
                    raise RuntimeError(f"{options}: {said}")
        finally:
            process.kill()


def lines(directory: Path) -> Iterator[Line]:
    options = ("--credits=256", "--policy=static", "--monitor=server")
    with links() as (_, link), serving(link, directory / "monitored", *options):
        for work in WORKS:
            yield _compared(link, work)
        yield _snapshots(link)


def _compared(link: Link, work: Work) -> Line:
    rates: list[float] = []
    with _Watch(link) as watch:
        for rate in _load(link, 2 * PAIRS + 1, *work.options):
            rates.append(rate)
            watch.switch()
    # The first second has a start in it.
    without, with_it = rates[1 : 2 * PAIRS : 2], rates[2 : 2 * PAIRS + 1 : 2]
    ratio = statistics.median(one / other for one, other in zip(with_it, without, strict=True))
    shown = [per_second(statistics.median(some)) for some in (with_it, without)]
    return Line(work.name, shown[0], f"without {shown[1]}", ratio, work.bar)


def _snapshots(link: Link) -> Line:
    """Of a thousand sessions that all do something."""
    with _Watch(link) as watch:
        for _ in _load(link, CROWD_SECONDS, *_CROWD):
            pass
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
