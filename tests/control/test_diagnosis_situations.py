# SPDX-License-Identifier: BSD-2-Clause
"""The limit that is named is the one there is, in situations that are made so that it is known."""

from __future__ import annotations

from collections import Counter

import pytest
from situations import Situation, situation

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Limit

QUICK, ALL = range(3), range(25)
RESOURCES = [limit for limit in Limit if limit is not Limit.NOTHING]


def said_of(made: Situation) -> tuple[Counter[Limit], int]:
    """What was named, once the ramp is over; and how often memory was to blame, at any time."""
    diagnostician = Diagnostician()
    named: Counter[Limit] = Counter()
    blamed = 0
    for snapshot in made.snapshots():
        (said,) = diagnostician.see(snapshot)
        blamed += said.is_degraded and said.limit is Limit.MEMORY
        if made.is_settled(snapshot):
            named[said.limit] += 1
    return named, blamed


@pytest.mark.parametrize("truth", Limit)
def test_limits_are_named(truth: Limit) -> None:
    named: Counter[Limit] = Counter()
    for seed in QUICK:
        found, blamed = said_of(situation(truth, seed))
        named += found
        assert truth is Limit.MEMORY or not blamed, seed
    assert named[truth] >= 0.95 * named.total(), named


@pytest.mark.slow
def test_95_of_100_windows_of_all_situations() -> None:
    named: Counter[tuple[Limit, Limit]] = Counter()
    for truth in Limit:
        for seed in ALL:
            found, blamed = said_of(situation(truth, seed))
            named.update({(truth, limit): count for limit, count in found.items()})
            assert truth is Limit.MEMORY or not blamed, (truth, seed)
    right = sum(count for (truth, limit), count in named.items() if truth is limit)
    assert right >= 0.95 * named.total(), named


def check_label(made: Situation) -> None:
    """More of what limits it gives more than more of anything else."""
    now = made.operations_per_s()
    gains = {one: made.relieved_of(one).operations_per_s() / now for one in RESOURCES}
    if made.truth is Limit.NOTHING:
        assert max(gains.values()) < 1.1, gains
    else:
        assert max(gains, key=gains.__getitem__) is made.truth, gains


@pytest.mark.slow
@pytest.mark.parametrize("truth", Limit)
def test_labels_are_true(truth: Limit) -> None:
    for seed in range(3):
        check_label(situation(truth, seed))


def test_a_label_can_be_wrong() -> None:
    made = situation(Limit.MEMORY, 0)
    wrong = Situation(**{**made.as_dict(), "truth": Limit.CREDITS})
    with pytest.raises(AssertionError):
        check_label(wrong)
