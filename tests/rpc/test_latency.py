# SPDX-License-Identifier: BSD-2-Clause
"""The histogram of latencies against a sorted list."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from livedma._native.latency import Latency

times = st.lists(
    st.one_of(
        st.integers(0, 300),
        st.integers(0, 10**9),
        st.integers(0, 1 << 40).map(lambda n: n - 1 if n else 0),
    ),
    min_size=1,
)


def filled(values: list[int]) -> Latency:
    ret = Latency()
    for value in values:
        ret.add(value)
    return ret


@given(times, st.floats(0, 1))
def test_quantiles_are_known_within_a_hundredth(values: list[int], part: float) -> None:
    exact = sorted(values)[max(math.ceil(part * len(values)), 1) - 1]
    found = filled(values).quantile_ns(part)
    assert exact <= found <= exact + exact / 128


@given(times)
def test_ends_and_sums_are_exact(values: list[int]) -> None:
    found = filled(values)
    assert (found.count, found.sum_ns) == (len(values), sum(values))
    assert (found.min_ns, found.max_ns) == (min(values), max(values))
    assert found.quantile_ns(1.0) == max(values)


@given(times, times)
def test_merged_is_as_if_added(one: list[int], other: list[int]) -> None:
    merged, whole = filled(one), filled(one + other)
    merged.merge(filled(other))
    for part in (0, 0.1, 0.5, 0.9, 0.99, 1):
        assert merged.quantile_ns(part) == whole.quantile_ns(part)
    assert (merged.count, merged.min_ns) == (whole.count, whole.min_ns)


def test_none_and_too_long() -> None:
    found = Latency()
    assert found.quantile_ns(0.5) == found.max_ns == found.min_ns == 0
    found.merge(Latency())
    assert found.count == 0
    found.add(1 << 50)
    found.add((1 << 64) - 1)
    assert found.quantile_ns(0.5) == found.max_ns == (1 << 64) - 1
    found.clear()
    assert (found.count, found.max_ns) == (0, 0)
