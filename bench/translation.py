"""What it costs to go through a window's table: WRITEs to a flat region and to windows, in turns.

First all to one place, so that nothing but the translation differs; then around 256 MiB, where the
device's tables and its cache have to prove themselves, and so has the processor's.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator

from bench.pair import Link, links, run_pair
from bench.report import ROUNDS, Line, heading

_ROCE_PORT = 4791
_ALLOWED_NS = 100.0
_SPANS = {"": 0, ", over 256 MiB": 256 << 20}
_WINDOWS = ("window", "window-2m")


def _rate(link: Link, memory: str, size: int, iterations: int, span: int) -> float:
    """Messages a second into the server's memory of this kind."""
    options = ["--mtu", "4096", "--spin", "10", "--via", "udp", "--alone", "--json"]
    server = ["livedma", "perf", "write-bw", "--listen", link.address, *options]
    client = ["livedma", "perf", "write-bw", link.address, *options]
    client += ["--size", str(size), "--iters", str(iterations)]
    client += ["--span", str(span)] if span else []
    found = run_pair(link, [*server, "--memory", memory], client, ("udp", _ROCE_PORT))
    return float(json.loads(found)["messages_per_s"])


def _turns(link: Link, size: int, iterations: int, span: int) -> dict[str, list[float]]:
    seen: dict[str, list[float]] = {kind: [] for kind in ("pinned", *_WINDOWS)}
    for turn in range(ROUNDS):
        for kind in sorted(seen, reverse=bool(turn % 2)):  # nobody is always the first
            seen[kind].append(_rate(link, kind, size, iterations, span))
    return seen


def _bandwidth(link: Link, where: str, span: int) -> Iterator[Line]:
    seen = _turns(link, 1 << 20, 1500, span)
    flat = statistics.median(seen["pinned"]) * 8 * (1 << 20) / 1e9
    for kind in _WINDOWS:
        ratio = statistics.median(a / b for a, b in zip(seen[kind], seen["pinned"], strict=True))
        gbits = statistics.median(seen[kind]) * 8 * (1 << 20) / 1e9
        what = f"WRITE 1 MiB to a {kind}{where}"
        yield Line(what, f"{gbits:.1f} Gbit/s", f"flat {flat:.1f} Gbit/s", ratio, 0.95)


def _small(link: Link, where: str, span: int) -> Iterator[Line]:
    seen = _turns(link, 64, 400_000, span)
    flat = 1e9 / statistics.median(seen["pinned"])
    for kind in _WINDOWS:
        more = statistics.median(
            1e9 / a - 1e9 / b for a, b in zip(seen[kind], seen["pinned"], strict=True)
        )
        ours, other = f"{more:+.0f} ns each", f"100 ns (flat: {flat:.0f} ns each)"
        yield Line(f"WRITE 64 B to a {kind}{where}", ours, other, more / _ALLOWED_NS, 1, True)


def lines() -> Iterator[Line]:
    with links() as found:
        for where, span in _SPANS.items():
            yield from _bandwidth(found[0], where, span)
            yield from _small(found[0], where, span)


def main() -> int:
    missed = 0
    print(heading(), flush=True)
    for line in lines():
        print(line, flush=True)
        missed += not line.holds
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
