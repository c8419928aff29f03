# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to go through a window's table: WRITEs to windows and to regions over such memory.

First all to one place, so that nothing but the translation differs; then around 256 MiB, where the
device's tables and its cache have to prove themselves, and so has the processor's.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator

from bench.pair import Link, links, run_pair
from bench.report import Line, judge

_ROCE_PORT = 4791
_TURNS = 11  # a few per cent are to be seen
_ALLOWED_NS = 100.0
_SPANS = {"": 0, ", over 256 MiB": 256 << 20}
_WINDOWS = {"window": "flat", "window-2m": "flat-2m"}


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
    kinds = [kind for pair in _WINDOWS.items() for kind in pair]
    seen: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(_TURNS):
        for kind in kinds[:: -1 if turn % 2 else 1]:  # nobody is always the first
            seen[kind].append(_rate(link, kind, size, iterations, span))
    return seen


def _bandwidth(link: Link, where: str, span: int) -> Iterator[Line]:
    seen = _turns(link, 1 << 20, 1500, span)
    for kind, flat in _WINDOWS.items():
        ratio = statistics.median(a / b for a, b in zip(seen[kind], seen[flat], strict=True))
        ours, other = (statistics.median(seen[k]) * 8 * (1 << 20) / 1e9 for k in (kind, flat))
        what = f"WRITE 1 MiB to a {kind}{where}"
        yield Line(what, f"{ours:.1f} Gbit/s", f"flat {other:.1f} Gbit/s", ratio, 0.95)


def _small(link: Link, where: str, span: int) -> Iterator[Line]:
    seen = _turns(link, 64, 400_000, span)
    for kind, flat in _WINDOWS.items():
        pairs = zip(seen[kind], seen[flat], strict=True)
        more = statistics.median(1e9 / ours - 1e9 / other for ours, other in pairs)
        each = 1e9 / statistics.median(seen[flat])
        ours, other = f"{more:+.0f} ns each", f"100 ns (flat: {each:.0f} ns each)"
        yield Line(f"WRITE 64 B to a {kind}{where}", ours, other, more / _ALLOWED_NS, 1, True)


def lines() -> Iterator[Line]:
    with links() as found:
        for where, span in _SPANS.items():
            yield from _bandwidth(found[0], where, span)
            yield from _small(found[0], where, span)


def main() -> int:
    return judge(lines())


if __name__ == "__main__":
    sys.exit(main())
