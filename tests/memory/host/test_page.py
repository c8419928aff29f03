# SPDX-License-Identifier: BSD-2-Clause
"""The page that people read, of machines other than this one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from machines import FRAGMENTED, OLD, TWO_NODES, machine, process

from livedma.cli.mem_page import clipped, line, page
from livedma.memory.host import Motion, advise, look
from livedma.memory.ledger import Entry

MOTION = Motion(
    "bpf", 2.0, 6, 3, 5000, 40, {"success": 3, "contended": 3}, {"compaction": 5000}, {}
)


def shown(files: dict[str, str], *processes: dict[str, str], tmp_path: Path) -> str:
    snapshot = look(machine(tmp_path, files, *processes), page_size=4096)
    return page(snapshot, advise(snapshot))


def test_two_nodes(tmp_path: Path) -> None:
    said = shown(TWO_NODES, process(7, pinned_kb=4 << 20), tmp_path=tmp_path).splitlines()
    assert said[0] == "storage7  Linux 6.8.0-45-generic  504 GiB of memory, 381 GiB available"
    for row in (
        "  pinned          4 GiB now; 91,234,567 pages were pinned since boot",
        "  huge pages      2 MiB: 100 of 8,192 free, 40 of them promised, 2 surplus",
        "                  node 0: 2 MiB: 0 of 6,144 free, 2 surplus",
        "                  1 GiB: 16 of 16 free",
        "  transparent     always (defrag: madvise)",
        "    node 0 ",
        "    node 1 ",
        "  waiting         for memory: 12.3 % of the last 10 s for some task, 3.2 % for all",
        "wrong  no block of 2 MiB is free on node 1",
    ):
        assert any(each.startswith(row) for each in said), row
    nodes = [each.split() for each in said if each.startswith("    node ")]
    assert [each[-1] for each in nodes] == ["454", "0"]


def test_an_old_kernel(tmp_path: Path) -> None:
    said = shown(OLD, process(7, locked_kb=4, cgroup="4:memory:/docker/abc"), tmp_path=tmp_path)
    assert "unknown: this kernel has no counters for it" in said
    assert "this kernel has no pools of them" in said
    assert "transparent     none in this kernel" in said
    assert "not measured by this kernel (boot with psi=1)" in said
    assert "cgroup /docker/abc: 142 MiB of 1 GiB used" in said
    assert "an unknown number of pages moved" in said


def test_why_there_are_no_large_blocks(tmp_path: Path) -> None:
    said = shown(FRAGMENTED, tmp_path=tmp_path).splitlines()
    (row,) = (each for each in said if each.startswith("    fragmentation"))
    assert row.split()[1:7] == ["-"] * 6
    assert all(0.9 < float(index) < 1 for index in row.split()[8:])
    assert "no process pins or locks memory or has any mapped for a device" in said


def test_entries_that_had_no_place(tmp_path: Path) -> None:
    snapshot = look(machine(tmp_path, TWO_NODES, process(7)), [7], 4096)
    sums = [Entry("pinned", 13, 0, 0, 4 << 20, 26, 13), Entry("flat", 1, 4096, 0, 4 << 20, 1, 1)]
    one = replace(snapshot.processes[0], entries=sums)
    said = page(replace(snapshot, processes=[one]), [])
    assert (
        "13 x pinned: 4 MiB mapped, 13 links, mixed granules: 26 descriptors "
        "(1,024 with 4 KiB, 2 with 2 MiB)" in said
    )
    assert (
        "flat: 4 MiB mapped, 1 link, 4 KiB granules: 1 descriptor (1,024 with 4 KiB, 2 with" in said
    )


def test_rates(tmp_path: Path) -> None:
    snapshot = look(machine(tmp_path, TWO_NODES), page_size=4096)
    said = page(snapshot, [], MOTION, "BPF is tired")
    assert "compaction 3.0/s, failed 1.5/s (3 success, 3 contended)" in said
    assert "moved 2,500 pages/s, could not 20/s (compaction)" in said
    assert "BPF is tired" in said
    assert "compaction 3.0/s, failed 1.5/s" in line(snapshot, MOTION, [])


def test_a_line_tells_what_went_wrong(tmp_path: Path) -> None:
    snapshot = look(machine(tmp_path, FRAGMENTED), page_size=4096)
    said = line(snapshot, None, advise(snapshot)).splitlines()
    assert "pinned unknown  locked 0 B  mapped 0 B  free 781 MiB  2 MiB blocks 0" in said[0]
    assert any(each.startswith("wrong  no block of 2 MiB is free") for each in said)


@pytest.mark.parametrize(
    ("columns", "lines", "text"),
    [
        (9, 9, "one\ntwo\nthree"),
        (3, 3, "one\ntwo\nthr"),
        (99, 2, "one\n2 lines more: a larger window shows them"),
    ],
)
def test_what_fits_on_a_screen(columns: int, lines: int, text: str) -> None:
    assert clipped("one\ntwo\nthree", os.terminal_size((columns, lines))) == text
