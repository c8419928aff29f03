# SPDX-License-Identifier: BSD-2-Clause
"""Taking and returning a pool's buffer in C: against the bar, malloc and the least there can be.

And what the probes cost while nobody listens: the same code built without them. All take turns of
less than a millisecond, so that whatever slows the machine down meets all of them.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.pair import LIMIT_S
from bench.report import Line, judge

_PROCESSES = 9  # where memory happens to lie makes a difference, too
_TURNS = 60
_PAIRS = 20_000
_ALLOWED_NS = 60.0
_HERE = Path(__file__).parent
_NATIVE = _HERE.parent / "native"
Figures = dict[str, float]


def _build(directory: Path, name: str, *options: str) -> str:
    library = str(directory / f"{name}.so")
    sources = [str(_HERE / "pool_cost.c"), *map(str, sorted(_NATIVE.glob("memory/pool*.c")))]
    argv = ["gcc", "-std=gnu11", "-O3", "-shared", "-fPIC", "-Wl,-Bsymbolic", *options]
    subprocess.run([*argv, f"-I{_NATIVE}", "-o", library, *sources, "-lpthread"], check=True)
    return library


def _measure(with_probes: str, without_probes: str) -> Figures:
    """ns a pair, medians of the turns."""
    ours, bare = ctypes.CDLL(with_probes), ctypes.CDLL(without_probes)
    runs = {
        "ours": ours.ours_ns,
        "bare": bare.ours_ns,
        "read": ours.read_ns,
        "malloc": ours.malloc_ns,
        "freelist": ours.freelist_ns,
    }
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run.restype = ctypes.c_double
    for turn in range(_TURNS):
        for name in sorted(runs, reverse=bool(turn % 2)):  # nobody is always the first
            seen[name].append(runs[name](_PAIRS))
    return {name: statistics.median(values) for name, values in seen.items()}


def _measure_elsewhere(*libraries: str) -> Figures:
    argv = [sys.executable, "-m", "bench.pool", *libraries]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=LIMIT_S)
    found: Figures = json.loads(done.stdout)
    return found


def lines(directory: Path) -> Iterator[Line]:
    libraries = _build(directory, "ours"), _build(directory, "bare", "-DLDMA_NO_PROBES")
    seen = [_measure_elsewhere(*libraries) for _ in range(_PROCESSES)]
    median = {name: statistics.median(one[name] for one in seen) for name in seen[0]}

    def against(other: str) -> float:
        return statistics.median(one["ours"] / one[other] for one in seen)

    what, ours = "take and return a buffer", f"{median['ours']:.1f} ns"
    bar = f"60 ns (bare freelist: {median['freelist']:.1f} ns)"
    yield Line(what, ours, bar, median["ours"] / _ALLOWED_NS, 1, is_cost=True)
    malloc = f"malloc and free {median['malloc']:.1f} ns"
    yield Line(what, ours, malloc, against("malloc"), 2, is_cost=True)
    bare = f"without probes {median['bare']:.1f} ns"
    yield Line(f"{what}, nobody listens", ours, bare, against("bare"), 1.05, is_cost=True)
    print(f"the same while events are read: {median['read']:.1f} ns")


def main() -> int:
    if len(sys.argv) > 1:
        print(json.dumps(_measure(*sys.argv[1:])))
        return 0
    with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name:
        return judge(lines(Path(name)))


if __name__ == "__main__":
    sys.exit(main())
