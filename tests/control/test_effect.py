# SPDX-License-Identifier: BSD-2-Clause
"""Whether something helped follows from the figures that are printed, or from the reason beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from livedma.control.act.effect import Measured, Seen, judge
from livedma.monitor.snapshot import Connection, Times

MS = 1_000_000
BEFORE = Measured(
    operations_per_s=1000,
    bytes_per_s=65e6,
    mean_ns=90 * MS,
    p99_ns=109 * MS,
    waited_ns=24 * MS,
    storage_ns=60 * MS,
    in_flight=90,
    mapped_bytes=4 << 20,
)
WORSE = replace(BEFORE, p99_ns=127 * MS, bytes_per_s=0.95 * 65e6, operations_per_s=950)


def test_what_is_worse_by_both_figures_is_no_help_though_waiting_is_gone() -> None:
    """p99 109 ms -> 127 ms, bandwidth -5 %: and nobody asks for more."""
    verdict = judge(BEFORE, replace(WORSE, waited_ns=0))
    assert (verdict.helped, verdict.reason) == (False, "")
    assert verdict.text == "p99 109 ms -> 127 ms, bandwidth -5 %"


def test_with_more_calls_at_a_time_waiting_that_is_gone_is_the_reason() -> None:
    verdict = judge(BEFORE, replace(WORSE, waited_ns=0, in_flight=120))
    assert verdict.helped is True
    assert verdict.reason == (
        "requests hardly wait for DMA memory (24 ms -> 0 ns), calls in flight 90 -> 120"
    )


@pytest.mark.parametrize(
    ("after", "helped", "reason"),
    [
        ({"p99_ns": 90 * MS}, True, ""),
        ({"bytes_per_s": 70e6, "operations_per_s": 1077}, True, ""),
        ({"operations_per_s": 1100}, True, "operations +10 %"),
        ({"mean_ns": 80 * MS}, True, "mean 90 ms -> 80 ms"),
        ({"waited_ns": 10 * MS}, True, "requests wait less for DMA memory (24 ms -> 10 ms)"),
        ({"waited_ns": 0, "storage_ns": 84 * MS}, False, ""),  # they wait in the store now
        ({}, False, ""),
        ({"p99_ns": 300 * MS}, False, ""),
    ],
)
def test_the_decision_follows_from_what_is_said(
    after: dict[str, float], helped: bool, reason: str
) -> None:
    verdict = judge(BEFORE, replace(BEFORE, **after))  # type: ignore[arg-type]
    assert (verdict.helped, verdict.reason) == (helped, reason)


def test_without_load_nothing_can_be_said() -> None:
    verdict = judge(BEFORE, replace(BEFORE, operations_per_s=10, in_flight=1))
    assert verdict.helped is None and verdict.text.endswith("the load has gone meanwhile")


def test_of_nothing_nothing_is_measured() -> None:
    assert Measured.of([]) is None
    idle = Connection(1, "a", 2, "b", 3, 0, 0, 0, 0, Times(), 0, 0, 0, 0, 0, 0, 0)
    measured = Measured.of([Seen(1.0, 0.1, idle)])
    assert measured is not None and measured.mean_ns == 0
