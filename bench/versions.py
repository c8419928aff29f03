# SPDX-License-Identifier: BSD-2-Clause
"""Compares the data path of two builds: `python -m bench.versions BEFORE AFTER`.

BEFORE and AFTER are the `livedma` commands of two installed builds, such as
`../before/.venv/bin/livedma`. For each figure the two take turns, the first of a turn by turns, and
a figure's ratio is after/before of the same turn (above 1: AFTER is faster). The exit status is 1
if a figure has become slower: if the whole middle half of its ratios is below the bar.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.pair import LIMIT_S, Link, run_pair, serving

BAR = 0.98  # the least ratio that is no slower: 2 % are what a machine at rest varies by
TURNS = 15
LOAD_S = 1.5
_CLIENT = "127.0.0.9"

LOADS = {
    "RDMA, read 64 KiB, 16 sessions": ("--sessions=16",),
    "RDMA, write 64 KiB, 16 sessions": ("--sessions=16", "--rw=write"),
    "RDMA, read 64 KiB, one at a time": ("--depth=1",),
    "RDMA, read 4 KiB, 8 sessions x 8": ("--sessions=8", "--depth=8", "--size=4KiB"),
    "RDMA, write 4 KiB, 8 sessions x 8": ("--sessions=8", "--depth=8", "--size=4KiB", "--rw=write"),
    "RDMA, both 1 MiB, 4 sessions": ("--sessions=4", "--size=1MiB", "--rw=mix"),
    "TCP, read 64 KiB, 16 sessions": ("--proto=tcp", "--sessions=16"),
    "TCP, write 64 KiB, 16 sessions": ("--proto=tcp", "--sessions=16", "--rw=write"),
    "TCP, read 4 KiB, 8 sessions x 8": ("--proto=tcp", "--sessions=8", "--depth=8", "--size=4KiB"),
}
PERFS = {
    "READ of 64 KiB, bandwidth": ("read-bw", "-s", "64KiB", "-n", "20000"),
    "READ of 64 B, bandwidth": ("read-bw", "-s", "64", "-n", "100000"),
    "WRITE of 64 KiB, bandwidth": ("write-bw", "-s", "64KiB", "-n", "20000"),
    "WRITE of 1 MiB, bandwidth": ("write-bw", "-s", "1MiB", "-n", "1500"),
    "WRITE of 64 KiB into a window": ("write-bw", "-s", "64KiB", "-n", "20000", "--memory=window"),
    "SEND of 4 KiB, bandwidth": ("send-bw", "-s", "4KiB", "-n", "100000"),
    "READ of 8 B, latency": ("read-lat", "-s", "8", "-n", "20000"),
    "WRITE of 8 B, latency": ("write-lat", "-s", "8", "-n", "20000"),
    "SEND of 64 B, latency": ("send-lat", "-s", "64", "-n", "20000"),
}


@dataclass(frozen=True)
class Build:
    """One of the two: its command, and the address of its servers."""

    command: str
    link: Link

    def load(self, *options: str) -> float:
        """Operations a second of a load on the build's server, by a client of the same build."""
        argv = [self.command, "load", self.link.address, "--json", "--no-verify", "--seed=1"]
        done = subprocess.run(
            self.link.command(0, [*argv, f"--seconds={LOAD_S}", *options]),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        )
        total = json.loads(done.stdout.splitlines()[-1])
        if total["errors"]:
            raise RuntimeError(f"{options}: {total}")
        return float(total["operations_per_s"])

    def perf(self, test: str, *options: str) -> float:
        """Bytes a second, or round trips: for both, more is better."""
        said = run_pair(
            self.link,
            [self.command, "perf", test, "--listen", self.link.address],
            [self.command, "perf", test, self.link.address, "-I", _CLIENT, "--json", *options],
            ("udp", 4791),
        )
        found = json.loads(said.splitlines()[-1])
        if test.endswith("-lat"):
            return float(1e6 / found["typical_us"])
        return float(found["bytes_per_s"])


@dataclass
class Figure:
    """One figure of both builds, in the order of the turns."""

    name: str
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Of the turns' ratios."""
        ratios = [after / before for before, after in zip(self.before, self.after, strict=True)]
        first, median, third = statistics.quantiles(ratios, n=4, method="inclusive")
        return first, median, third

    @property
    def is_slower(self) -> bool:
        return self.quartiles[2] < BAR

    def __str__(self) -> str:
        first, median, third = self.quartiles
        rates = f"{statistics.median(self.before):12.5g} {statistics.median(self.after):12.5g}"
        spread = f"{median:7.3f}  {first:.3f} to {third:.3f}"
        return f"{self.name:<36} {rates} {spread}  {'SLOWER' if self.is_slower else 'holds'}"


def heading() -> str:
    return f"{'':<36} {'before':>12} {'after':>12} {'ratio':>7}  {'middle half':<14}  >= {BAR:g}"


def take_turns(
    builds: Sequence[Build], figures: Mapping[str, Callable[[Build], float]], turns: int
) -> Iterator[Figure]:
    """Measures all figures in each turn, so that a noisy minute meets all of them a little."""
    found = {name: Figure(name) for name in figures}
    for turn in range(turns):
        for name, measure in figures.items():
            order = builds if turn % 2 == 0 else builds[::-1]
            rates = {build.link.name: measure(build) for build in order}
            found[name].before.append(rates[builds[0].link.name])
            found[name].after.append(rates[builds[1].link.name])
    yield from found.values()


@contextmanager
def _serving(builds: Sequence[Build]) -> Iterator[None]:
    """A server of each build, at once: the one that is not asked waits without work."""
    with tempfile.TemporaryDirectory(prefix="livedma-versions-") as name, ExitStack() as stack:
        for number, build in enumerate(builds):
            options = ("--policy=static", "--grace=1", "--lease=1", "--tcp=2049")
            directory = Path(name) / f"{number}"
            stack.enter_context(serving(build.link, directory, *options, livedma=build.command))
        time.sleep(2)  # the grace is over
        yield


def _load(build: Build, options: Sequence[str]) -> float:
    return build.load(*options)


def _perf(build: Build, options: Sequence[str]) -> float:
    return build.perf(*options)


def compared(builds: Sequence[Build], turns: int, only: str = "") -> Iterator[Figure]:
    """only: a part of the names of the figures that are wanted."""
    loads = {name: partial(_load, options=options) for name, options in LOADS.items()}
    perfs = {name: partial(_perf, options=options) for name, options in PERFS.items()}
    loads, perfs = (
        {name: one for name, one in each.items() if only in name} for each in (loads, perfs)
    )
    if loads:
        with _serving(builds):
            yield from take_turns(builds, loads, turns)
    if perfs:
        yield from take_turns(builds, perfs, turns)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__)
    parser.add_argument("before", help="the livedma command of the build before")
    parser.add_argument("after", help="the livedma command of the build after")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns of each ({TURNS})")
    parser.add_argument("--only", default="", help="figures whose names have this in them")
    args = parser.parse_args(argv)
    builds = [
        Build(os.path.abspath(command), Link(name, address, "lo"))
        for name, command, address in (
            ("before", args.before, "127.0.0.2"),
            ("after", args.after, "127.0.0.3"),
        )
    ]
    print(heading(), flush=True)
    slower = 0
    for figure in compared(builds, max(args.turns, 2), args.only):
        print(figure, flush=True)
        slower += figure.is_slower
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
