# SPDX-License-Identifier: BSD-2-Clause
"""A small real experiment: is filling memory with ones slower than copying it?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from livedma.lab.experiment.design import (
    Column,
    Experiment,
    Form,
    LeftOut,
    Measures,
    Panel,
    Point,
    grid,
)
from livedma.lab.experiment.runs import Row, Runs


class Tiny(Experiment):
    name = "tiny"
    question = "Is filling memory slower than copying it, & does <size> matter?"
    factors = (Column("way", "way"), Column("size_bytes", "size", "bytes"))
    measures = (
        Column("spent_ns", "time spent", "ns"),
        Column("rate_bytes_per_s", "rate", "bytes_per_s"),
        Column("pid", "process", "count"),
        Column("where", "measured where"),
    )
    method = ("Memory of a size is filled or copied, once.",)
    point_limit_s = 5.0

    def points(self, form: Form) -> list[Point]:
        sizes = (4096, 65536) if form == "quick" else (4096, 65536, 1 << 20)
        return list(grid(way=("fill", "copy"), size_bytes=sizes))

    def run(self, point: Point) -> Measures:
        size = int(str(point["size_bytes"]))
        source = bytes(size)
        started_ns = time.perf_counter_ns()
        found = b"\1" * size if point["way"] == "fill" else bytearray(source)
        spent_ns = time.perf_counter_ns() - started_ns
        assert len(found) == size
        rate = size * 1e9 / spent_ns
        return {
            "spent_ns": spent_ns,
            "rate_bytes_per_s": rate,
            "pid": os.getpid(),
            "where": "in memory",
        }

    def answer(self, runs: Runs) -> list[str]:
        ratio = runs.ratio("spent_ns", {"way": "fill"}, {"way": "copy"})
        assert ratio is not None
        word = "slower" if ratio.median > 1 else "faster"
        return [f"Filling is {word} than copying.", f"{ratio.count} pairs were compared."]

    def panels(self, runs: Runs) -> Sequence[Panel]:
        return (
            Panel("time", "Time by size", "size_bytes", "spent_ns", "way"),
            Panel("ways", "Rate by way", "way", "rate_bytes_per_s", "size_bytes", is_log=False),
        )


class Troubled(Tiny):
    """At some sizes it cannot, at others it fails, each in a way of its own."""

    name = "troubled"
    point_limit_s = 1.0

    def repetitions(self, form: Form) -> int:
        return 2

    def points(self, form: Form) -> list[Point]:
        return list(grid(way=("copy",), size_bytes=(4096, 1, 2, 3, 4)))

    def run(self, point: Point) -> Measures:
        match point["size_bytes"]:
            case 1:
                raise LeftOut("there is too little of it: take more")
            case 2:
                raise OSError(12, "no memory")
            case 3:
                os.kill(os.getpid(), signal.SIGKILL)
            case 4:
                time.sleep(60)
        return super().run(point)

    def answer(self, runs: Runs) -> list[str]:
        return ["What can be measured was."]


class Endless(Tiny):
    """Makes a file, and removes it at the end, which never comes by itself."""

    name = "endless"
    point_limit_s = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def repetitions(self, form: Form) -> int:
        return 1

    def points(self, form: Form) -> list[Point]:
        return list(grid(way=("copy",), size_bytes=(1,)))

    def run(self, point: Point) -> Measures:
        self.path.write_text("made")
        try:
            time.sleep(60)
        finally:
            self.path.write_text("undone")
        return {}


class Levels(Tiny):
    """Goes through the sizes by itself; the second way in the first turn only."""

    name = "levels"
    within = ("size_bytes",)

    def repetitions(self, form: Form) -> int:
        return self.repeats or 2

    def points(self, form: Form) -> list[Point]:
        return [{"way": way} for way in ("fill", "copy", "fail")]

    def takes_part(self, point: Point, turn: int, form: Form) -> bool:
        return turn == 0 or point["way"] != "copy"

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        if point["way"] == "fail":
            raise OSError(5, "no luck")
        return [({"size_bytes": size}, {"spent_ns": size, "pid": os.getpid()}) for size in (1, 2)]


def made_up(fill_ns: float, copy_ns: float) -> Runs:
    """Data of two turns, the second one disturbed: everything took ten times as long."""
    return Runs(
        [
            Row(
                {"way": way, "size_bytes": size},
                turn,
                0,
                {"spent_ns": ns * size * 10**turn, "rate_bytes_per_s": 1e9 / ns},
            )
            for way, ns in (("fill", fill_ns), ("copy", copy_ns))
            for size in (4096, 65536)
            for turn in (0, 1)
        ]
    )
