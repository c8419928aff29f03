# SPDX-License-Identifier: BSD-2-Clause
"""What the server alone, the wire alone and both together can decide: the table of diagnosis.md,
row by row, with snapshots as each of these sources makes them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from situations import situation

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Limit
from livedma.monitor.snapshot import Source

SEEDS = range(4)
SOURCES: tuple[Source, ...] = ("server", "bpf", "bpf+server")
PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
_ROW = re.compile(r"\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")


def table() -> dict[str, tuple[str, ...]]:
    """The first words of each cell."""
    text = PAGE.read_text()
    found = text[text.index("| the limit there is |") :].partition("\n\n")[0]
    rows = [match.groups() for match in map(_ROW.fullmatch, found.splitlines()[1:]) if match]
    return {row[0]: row[1:] for row in rows}


def said_of(truth: Limit, source: Source) -> tuple[Counter[Limit], int]:
    """What was named once the ramp was over, and how often it was called slow."""
    named: Counter[Limit] = Counter()
    slow = 0
    for seed in SEEDS:
        made, diagnostician = situation(truth, seed), Diagnostician()
        for snapshot in made.snapshots(source):
            assert snapshot.source == source
            (said,) = diagnostician.see(snapshot)
            if made.is_settled(snapshot):
                named[said.limit] += 1
                slow += said.is_degraded
    return named, slow


def test_the_table_has_a_row_for_each_limit() -> None:
    assert set(table()) == {limit.value for limit in Limit}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("truth", Limit)
def test_each_cell_is_what_the_diagnosis_says(truth: Limit, source: Source) -> None:
    cell = table()[truth.value][SOURCES.index(source)]
    named, slow = said_of(truth, source)
    whole = named.total()
    if cell.startswith("named"):
        assert named[truth] >= 0.85 * whole
    elif cell.startswith("only if all are in use"):
        assert 0.25 * whole <= named[truth] < 0.85 * whole
        assert named[truth] + named[Limit.NOTHING] == whole
    elif cell.startswith("credits, wrongly"):
        assert named[Limit.CREDITS] == whole
    elif cell.startswith("slow"):
        assert named[truth] == 0 and slow >= 0.5 * whole
    else:
        assert cell.startswith("nothing")
        assert named[Limit.NOTHING] == whole and not slow
    if source == "bpf":
        assert not named[Limit.MEMORY], "memory must not be blamed by what cannot know it"
