# SPDX-License-Identifier: BSD-2-Clause
"""Prints every comparison as it is made. Exit status 1 if a bar is missed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench import (
    capture_rate,
    decode,
    monitor,
    nfsd,
    pool,
    rdma,
    reserve,
    storage,
    translation,
    views,
    windows,
)
from bench.report import heading

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import recorded


def _captures() -> list[str]:
    return [str(path) for name in recorded.names() if (path := recorded.find(name)) is not None]


def main() -> int:
    captures = _captures()
    missed = 0
    print(
        f"medians of 5, taking turns, {os.cpu_count()} cores, packets of {len(captures)} captures"
    )
    print(heading(), flush=True)
    with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name:
        directory = Path(name)
        for lines in (
            decode.speed(directory, captures),
            decode.memory(directory, captures),
            capture_rate.lines(),
            pool.lines(directory),
            rdma.lines(directory),
            translation.lines(),
            windows.lines(),
            storage.lines(directory),
            reserve.lines(directory),
            monitor.lines(directory),
            nfsd.lines(),
            views.lines(directory),
        ):
            for line in lines:
                print(line, flush=True)
                missed += not line.holds
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
