# SPDX-License-Identifier: BSD-2-Clause
"""Experiments with real servers and loads, as small as they can be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from livedma.lab.experiment import ablations, step
from livedma.lab.experiment.diagnosis import Diagnoses
from livedma.lab.experiment.ramp import Ramp
from livedma.lab.experiment.ramp_answer import MEMORY
from livedma.lab.experiment.ramp_level import COLUMNS, Timing
from livedma.lab.experiment.trial import Trial
from needs import needs

pytestmark = [pytest.mark.slow, pytest.mark.apart]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    before = set(Path("/run/netns").glob(f"ldma-{os.getpid()}-*"))
    yield
    assert set(Path("/run/netns").glob(f"ldma-{os.getpid()}-*")) == before


def test_a_ramp_has_a_row_for_each_level() -> None:
    ramp = Ramp()
    ramp.levels, ramp.timing = (1, 3), Timing(measure_s=0.3, settle_limit_s=2.0)
    rows = ramp.rows({"situation": MEMORY, "policy": "static"})
    assert [levels for levels, _ in rows] == [{"sessions": 1}, {"sessions": 3}]
    for _, measures in rows:
        assert set(measures) == {column.name for column in COLUMNS}
        assert (measures["errors"], measures["reconnects"], measures["refused"]) == (0, 0, 0)
        assert measures["connections"] == 1
        assert measures["mapped_bytes"] == 4 << 20
        assert measures["buffers"] == measures["buffers_first"] == 55  # and one kept back
        assert float(str(measures["p50_us"])) >= 20_000  # the store's delay
    one, three = (float(str(measures["ops_per_s"])) for _, measures in rows)
    assert 0 < one <= 200 and three <= 600  # 3 requests a session, each of 20 ms


def test_a_wire_that_loses_packets_and_every_answer_right() -> None:
    situation = replace(ablations.BESIDE["network"], sessions=2)
    with Trial(situation, "static", sessions=2) as trial:
        assert trial.have_sessions(2) == {"sessions": 2, "refused": 0}
        total = trial.finish()
    assert (total["errors"], total["wrong_data"]) == (0, 0)


def test_a_situation_is_diagnosed() -> None:
    """Whatever is said on a busy machine: it is said, in every snapshot, and adds up."""
    diagnoses = Diagnoses()
    point = next(one for one in diagnoses.points("quick") if one["limit"] == "credits")
    found = diagnoses.run(point)
    windows = int(str(found["windows"]))
    assert windows > 0
    assert sum(int(str(v)) for name, v in found.items() if name.startswith("said_")) == windows
    assert found["sentence"]


def test_steps_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "_HAND_STEPS", 2)
    rows = step.Steps().rows({"by": step.HAND})
    assert [levels["step"] for levels, _ in rows] == [0, 1]
    for _, measures in rows:
        assert all(float(str(measures[name])) > 0 for name in ("took_ns", "longest_ns"))
