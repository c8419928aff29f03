# SPDX-License-Identifier: BSD-2-Clause
"""Prints every comparison as it is made. Exit status 1 if a bar is missed."""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import chain
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
from bench.report import judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import recorded


def _captures() -> list[str]:
    return [str(path) for name in recorded.names() if (path := recorded.find(name)) is not None]


def main() -> int:
    captures = _captures()
    print(
        f"medians of 5, taking turns, {os.cpu_count()} cores, packets of {len(captures)} captures"
    )
    with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name:
        directory = Path(name)
        parts = (
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
        )
        return judge(chain.from_iterable(parts))


if __name__ == "__main__":
    sys.exit(main())
