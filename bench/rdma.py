# SPDX-License-Identifier: BSD-2-Clause
"""RDMA between two processes on two cores: ours, libfabric, UCX, and a bare UDP loop as the limit.

They take turns, over lo and over veth. Figures are medians; ratios are medians over turns, so that
what disturbs a whole turn does not count. How far apart the two cores are is measured each turn: on
a virtual machine it changes, and with it everything else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.pair import CLIENT_CPU, LIMIT_S, SERVER_CPU, Link, build, links, run_pair
from bench.rdma_peers import Contestant, Libfabric, Ucx, UdpLimit, number_before
from bench.report import ROUNDS, Line, heading, per_second

_ROCE_PORT = 4791
Values = list[float]
Figures = dict[str, dict[str, Values]]


class Ours:
    """`livedma perf`; with --json the client prints one object."""

    def __init__(self, via: str) -> None:
        self._via = via

    def _run(self, link: Link, test: str, size: int, iterations: int) -> dict[str, float]:
        options = ["--size", str(size), "--iters", str(iterations), "--mtu", "4096"]
        options += ["--spin", "10", "--via", self._via, "--alone", "--json"]
        server = ["livedma", "perf", test, "--listen", link.address, *options]
        client = ["livedma", "perf", test, link.address, *options]
        found: dict[str, float] = json.loads(run_pair(link, server, client, ("udp", _ROCE_PORT)))
        return found

    def write_bandwidth(self, link: Link) -> float:
        return self._run(link, "write-bw", 1 << 20, 1000)["bytes_per_s"]

    def write_rate(self, link: Link) -> float:
        return self._run(link, "write-bw", 4096, 100_000)["messages_per_s"]

    def latency(self, link: Link) -> float:
        return self._run(link, "send-lat", 64, 20_000)["typical_us"] * 1000


_FIGURES: dict[str, Callable[[Contestant, Link], float]] = {
    "bandwidth": lambda one, link: one.write_bandwidth(link),
    "rate": lambda one, link: one.write_rate(link),
    "latency": lambda one, link: one.latency(link),
}


def contestants(directory: Path) -> dict[str, Contestant]:
    return {
        "limit": UdpLimit(build(directory, "udp_limit", "isal")),
        "libfabric": Libfabric(build(directory, "peer_libfabric", "fabric")),
        "UCX": Ucx(),
        "ours": Ours("udp"),
        "packet": Ours("packet"),
    }


def core_distance_ns(binary: str) -> float:
    """The round trip of a cache line between the cores that are measured on."""
    argv = [binary, str(CLIENT_CPU), str(SERVER_CPU)]
    run = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    return number_before("ns", run.stdout)


def measure(link: Link, directory: Path, rounds: int = ROUNDS) -> Figures:
    """Every figure of every contestant, turn by turn."""
    runs = contestants(directory)
    seen: Figures = {figure: {name: [] for name in runs} for figure in _FIGURES}
    core_distance, distances = build(directory, "core_distance", "pthread"), []
    for _ in range(rounds):
        distances.append(core_distance_ns(core_distance))
        for figure, run in _FIGURES.items():
            for name, one in runs.items():
                seen[figure][name].append(run(one, link))
    return {**seen, "distance": {"cores": distances}}


def best_of(one: Values, other: Values) -> Values:
    return [max(pair) for pair in zip(one, other, strict=True)]


def ratio(ours: Values, other: Values) -> float:
    return statistics.median(mine / its for mine, its in zip(ours, other, strict=True))


def _gbits(rate: float) -> str:
    return f"{rate * 8 / 1e9:.1f} Gbit/s"


def _us(ns: float) -> str:
    return f"{ns / 1000:.2f} us"


def compare(link: str, seen: Figures) -> Iterator[Line]:
    """Each bar, held against what needs no privilege: the UDP port."""
    bandwidth, rate, latency = seen["bandwidth"], seen["rate"], seen["latency"]

    def line(
        what: str,
        unit: Callable[[float], str],
        ours: Values,
        name: str,
        other: Values,
        bar: float,
        is_cost: bool = False,
    ) -> Line:
        mine = unit(statistics.median(ours))
        against = f"{name} {unit(statistics.median(other))}"
        return Line(f"{what}, {link}", mine, against, ratio(ours, other), bar, is_cost)

    what, ours = "RDMA WRITE 1 MiB, MTU 4096", bandwidth["ours"]
    best = best_of(bandwidth["libfabric"], bandwidth["UCX"])
    yield line(what, _gbits, ours, "libfabric or UCX", best, 1.5)
    yield line(what, _gbits, ours, "UDP, CRC, copy", bandwidth["limit"], 0.6)
    what, ours = "RDMA WRITE 4 KiB", rate["ours"]
    yield line(what, per_second, ours, "libfabric", rate["libfabric"], 1.5)
    yield line(what, per_second, ours, "UCX put", rate["UCX"], 1.5)
    what, ours = "SEND 64 B, one way", latency["ours"]
    yield line(what, _us, ours, "UCX tag", latency["UCX"], 1, is_cost=True)
    yield line(what, _us, ours, "raw UDP", latency["limit"], 1.6, is_cost=True)


def packet_note(link: str, seen: Figures) -> str:
    bandwidth, rate, latency = (
        statistics.median(seen[figure]["packet"]) for figure in ("bandwidth", "rate", "latency")
    )
    figures = f"{_gbits(bandwidth)}, {per_second(rate)}, {_us(latency)}"
    return f"{link}: the same through the packet port, which verifies every ICRC in full: {figures}"


def distance_note(link: str, seen: Figures) -> str:
    turns = " ".join(f"{ns:.0f}" for ns in seen["distance"]["cores"])
    return f"{link}: a cache line between the two cores and back, turn by turn: {turns} ns"


def lines(directory: Path) -> Iterator[Line]:
    """For the table of all comparisons; how far apart the cores were is said below the lines."""
    with links() as found:
        for link in found:
            seen = measure(link, directory)
            yield from compare(link.name, seen)
            print(packet_note(link.name, seen))
            print(distance_note(link.name, seen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="every figure of every turn")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name, links() as found:
        seen = {link.name: measure(link, Path(name), args.rounds) for link in found}
    if args.json:
        print(json.dumps(seen))
        return
    print(heading())
    for link_name, figures in seen.items():
        for line in compare(link_name, figures):
            print(line)
        print(packet_note(link_name, figures))
        print(distance_note(link_name, figures))


if __name__ == "__main__":
    main()
