# SPDX-License-Identifier: BSD-2-Clause
"""Free memory by order: other machines' texts, and this kernel as the judge of the formulas."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from machines import FRAGMENTED, OLD, TWO_NODES

from livedma.memory.host.buddy import Zone, together, zones
from needs import needs


def test_zones_of_two_nodes() -> None:
    found = zones(TWO_NODES["proc/buddyinfo"])
    assert [(zone.node, zone.name) for zone in found] == [
        (0, "DMA"),
        (0, "DMA32"),
        (0, "Normal"),
        (1, "Normal"),
    ]
    assert found[0].free == (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2)
    assert found[0].free_pages == 256 + 512 + 2048
    assert found[0].largest_order == 10
    assert found[3].largest_order == 5
    assert together(found).free[10] == 2 + 340 + 112
    assert together(found, 1).free == found[3].free
    assert together(found, 7).free == ()


def test_blocks_come_from_larger_ones() -> None:
    zone = Zone(0, "Normal", (1, 0, 2, 1))
    assert [zone.blocks(order) for order in range(5)] == [17, 8, 4, 1, 0]


def test_how_much_is_unusable() -> None:
    zone = Zone(0, "Normal", (1, 0, 2, 1))
    assert [zone.unusable_index(order) for order in range(5)] == [0.0, 0.058, 0.058, 0.529, 1.0]
    assert Zone(0, "Normal", (0, 0)).unusable_index(0) == 1.0


def test_why_a_request_would_fail() -> None:
    (zone,) = zones(OLD["proc/buddyinfo"])
    assert zone.fragmentation_index(3) is None
    # ideally 3,744 pages would be 7.3 blocks of order 9, but they are 3,333
    assert zone.fragmentation_index(9) == 0.998
    assert Zone(0, "Normal", (3, 0, 0)).fragmentation_index(2) == 0.417
    assert Zone(0, "Normal", (0, 0)).fragmentation_index(1) == 0.0
    assert Zone(0, "Normal", (0, 0)).largest_order is None
    (pieces,) = zones(FRAGMENTED["proc/buddyinfo"])
    assert pieces.fragmentation_index(9) is not None


@pytest.mark.parametrize(
    "text",
    ["", "Node 0, zone   Normal", "Node x, zone Normal 1 2", "Node 0, zone Normal 1 -2", "1 2 3"],
)
def test_what_is_no_zone(text: str) -> None:
    assert zones(text) == []


@pytest.mark.slow
def test_the_kernel_agrees(tmp_path: Path) -> None:
    """debugfs shows the kernel's own indexes; what changed between two looks does not count."""
    needs(os.geteuid() == 0, "debugfs needs root")
    look = (
        'mount -t debugfs none "$0" && cd "$0/extfrag" && '
        "cat /proc/buddyinfo unusable_index extfrag_index /proc/buddyinfo"
    )
    agreed = set()
    for _ in range(20):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", look, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=30,
        )
        needs(not done.returncode, f"no fragmentation indexes in debugfs: {done.stderr}")
        lines = done.stdout.splitlines()
        count = len(lines) // 4
        before, unusable, fragmentation, after = (
            lines[i * count : (i + 1) * count] for i in range(4)
        )
        for i in range(count):
            if before[i] == after[i]:
                (zone,) = zones(before[i])
                orders = range(len(zone.free))
                ours = [f"{zone.unusable_index(order):.3f}" for order in orders]
                assert unusable[i].split()[4:] == ours
                values = [zone.fragmentation_index(order) for order in orders]
                assert fragmentation[i].split()[4:] == [
                    f"{-1 if value is None else value:.3f}" for value in values
                ]
                agreed.add((zone.node, zone.name))
    assert agreed
