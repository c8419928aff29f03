# SPDX-License-Identifier: BSD-2-Clause
"""Real servers under real load, recorded on a machine whose two processors had ten times as much to
do: threads wait, clients stop for a while, and figures are rough. Whatever is changed about the
diagnosis, these have to stay right.

Of sessions the recordings have only what a diagnosis reads.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.monitor.snapshot import Snapshot

RECORDED = Path(__file__).resolve().parents[1] / "data" / "diagnosis"
SETTLED, ENDING = 8, 5  # snapshots after the last session began, and before the load ended

# 64 KiB reads of 64 sessions that have 3 calls each under way, a store that takes 20 ms for each
# access, 64 credits and 56 buffers, but for what is said.
TRUTHS = {
    "memory": Limit.MEMORY,
    "memory-writes": Limit.MEMORY,
    "memory-rare-loss": Limit.MEMORY,  # 0.1 % of the trains
    "storage": Limit.STORAGE,  # which makes 32 accesses at a time
    "credits": Limit.CREDITS,  # 16
    "slots": Limit.SLOTS,  # 2 for each of 8 sessions that asked for 16
    "cpu": Limit.CPU,  # no delay
    "loss": Limit.NETWORK,  # 0.1 % of the trains, 16 sessions, 120 buffers, 5 ms
    "light": Limit.NOTHING,  # 8 sessions
}
SESSIONS = {"slots": 8, "light": 8, "loss": 16}


def diagnosed(name: str) -> tuple[list[Diagnosis], list[Diagnosis]]:
    """All, and those of the time when all sessions were there."""
    diagnostician = Diagnostician()
    found: list[Diagnosis] = []
    settled: list[Diagnosis] = []
    for one in json.loads(lzma.decompress((RECORDED / f"{name}.json.xz").read_bytes())):
        snapshot = Snapshot.from_json(one)
        diagnoses = diagnostician.see(snapshot)
        found += diagnoses
        if diagnoses and snapshot.connections[0].sessions >= SESSIONS.get(name, 64):
            settled += diagnoses
    return found, settled[SETTLED:-ENDING]


@pytest.mark.parametrize("name", TRUTHS)
def test_the_true_limit_is_named(name: str) -> None:
    found, settled = diagnosed(name)
    named = Counter(one.limit for one in settled)
    assert named[TRUTHS[name]] >= 0.9 * named.total() > 5, named
    if TRUTHS[name] is not Limit.MEMORY:
        assert not [one for one in found if one.is_degraded and one.limit is Limit.MEMORY]


def test_95_of_100_in_all() -> None:
    right = total = 0
    for name, truth in TRUTHS.items():
        _, settled = diagnosed(name)
        right += sum(one.limit is truth for one in settled)
        total += len(settled)
    assert right >= 0.95 * total


def test_there_is_no_recording_without_a_truth() -> None:
    assert {path.name.removesuffix(".json.xz") for path in RECORDED.iterdir()} == set(TRUTHS)
