# SPDX-License-Identifier: BSD-2-Clause
"""What counts as a steady rise, and what does not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.control.diagnose.trend import BINS, binned, trend


def every(values: list[float], step_s: float = 0.1) -> list[tuple[float, float]]:
    return [(1000 + step_s * number, value) for number, value in enumerate(values)]


@given(
    start=st.floats(0, 1e4),
    per_s=st.floats(0.1, 1e4),
    width_s=st.sampled_from([0.1, 0.2, 0.4, 0.8]),
)
def test_a_line_is_found(start: float, per_s: float, width_s: float) -> None:
    values = every([start + per_s * 0.1 * number for number in range(80)])
    found = trend(binned(values, width_s))
    assert found is not None
    assert found.per_s == pytest.approx(per_s, rel=1e-3)
    assert found.spread <= 1e-2 * per_s + 1e-3


@given(level=st.floats(0, 1e4), per_s=st.floats(-1e3, 0))
def test_what_falls_or_stays_does_not_rise(level: float, per_s: float) -> None:
    found = trend(binned(every([level + per_s * 0.1 * n for n in range(20)]), 0.1))
    assert found is not None and found.per_s == 0


@given(low=st.floats(0, 1e3), more=st.floats(0.1, 1e3), at=st.integers(0, BINS))
def test_a_jump_is_no_rise(low: float, more: float, at: int) -> None:
    found = trend(every([low] * at + [low + more] * (BINS - at)))
    assert found is not None and found.per_s == 0


def test_noise_rarely_looks_like_a_rise() -> None:
    chance = random.Random(1)
    found = [trend(every([chance.gauss(50, 3) for _ in range(BINS)])) for _ in range(2000)]
    assert sum(one is not None and one.per_s > 0 for one in found) < 10


@given(st.integers(0, 5))
def test_few_samples_tell_nothing(count: int) -> None:
    assert trend(binned(every([float(n) for n in range(count)]), 0.1)) is None


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=200), st.sampled_from([0.1, 0.4, 0.8]))
def test_bins_keep_order_and_average(values: list[float], width_s: float) -> None:
    found = binned(every(values), width_s)
    assert 1 <= len(found) <= BINS
    assert found == sorted(found)
    assert min(values) - 1e-6 <= min(value for _, value in found)
    assert max(value for _, value in found) <= max(values) + 1e-6
