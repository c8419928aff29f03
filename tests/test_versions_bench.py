# SPDX-License-Identifier: BSD-2-Clause
"""Two builds side by side: which of the ratios count as slower, and that both really run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from bench.pair import Link
from bench.versions import LOADS, PERFS, Build, Figure, take_turns

BUILDS = [Build("before", Link("before", "127.0.0.2", "lo"))]
BUILDS += [Build("after", Link("after", "127.0.0.3", "lo"))]
LIMIT_S = 120


@pytest.mark.parametrize(
    ("after", "is_slower"),
    [
        ([100, 100, 100, 100, 100], False),
        ([96, 97, 97, 97, 97], True),
        ([90, 97, 97, 97, 99], True),
        ([90, 90, 97, 99, 99], False),  # a quarter and more is fast enough
        ([97.99, 97.99, 97.99, 97.99, 97.99], True),
        ([98, 98, 98, 98, 98], False),
    ],
)
def test_the_whole_middle_half_has_to_be_below_the_bar(after: list[float], is_slower: bool) -> None:
    figure = Figure("it", [100.0] * len(after), after)
    assert figure.is_slower is is_slower
    assert str(figure).endswith("SLOWER" if is_slower else "holds")


def test_builds_take_turns_and_each_begins_as_often() -> None:
    seen: list[str] = []

    def measure(build: Build) -> float:
        seen.append(build.command)
        return 10.0 * len(seen) if build.command == "after" else 5.0

    (figure,) = take_turns(BUILDS, {"it": measure}, 2)
    assert seen == ["before", "after", "after", "before"]
    assert (figure.before, figure.after) == ([5.0, 5.0], [20.0, 30.0])
    assert figure.quartiles == (4.5, 5.0, 5.5)


@pytest.mark.slow
@pytest.mark.parametrize("only", ["RDMA, read 64 KiB, one", "SEND of 64 B", "TCP, read 64"])
def test_a_build_beside_itself(only: str) -> None:
    livedma = shutil.which("livedma") or os.path.join(os.path.dirname(sys.executable), "livedma")
    command = [sys.executable, "-m", "bench.versions", livedma, livedma]
    found = subprocess.run(
        [*command, "--turns=2", f"--only={only}"], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert "Traceback" not in found.stderr  # a busy machine makes the status 0 or 1
    _, line = found.stdout.splitlines()
    assert line.startswith(only) and line.endswith(("holds", "SLOWER"))
    assert sum(only in name for name in (*LOADS, *PERFS)) == 1
