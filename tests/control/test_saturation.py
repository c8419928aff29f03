# SPDX-License-Identifier: BSD-2-Clause
"""What does more with more at a time, and what only takes longer."""

from __future__ import annotations

from livedma.control.diagnose.saturation import Saturation

KIND = "reads"


def seen(*pairs: tuple[float, float], times: int = 4) -> Saturation:
    ret = Saturation()
    for at_a_time, per_s in pairs:
        for _ in range(times):
            ret.observe(KIND, at_a_time, per_s)
    return ret


def test_a_constant_time_for_each_is_no_saturation() -> None:
    grown = seen((8, 400), (16, 800), (32, 1600), (64, 3200))
    assert grown.did_as_much_with(KIND, 64) is None
    assert grown.has_grown(KIND, 64)


def test_what_did_as_much_with_fewer_is_saturated() -> None:
    flat = seen((4, 200), (8, 400), (16, 400), (64, 410))
    assert flat.did_as_much_with(KIND, 64) == 8
    assert not flat.has_grown(KIND, 64)
    assert flat.did_as_much_with(KIND, 8) is None


def test_a_little_more_with_many_more_is_saturated_too() -> None:
    assert seen((16, 900), (64, 1000)).did_as_much_with(KIND, 64) == 16
    assert seen((16, 800), (64, 1000)).did_as_much_with(KIND, 64) is None


def test_numbers_that_are_close_are_not_compared() -> None:
    assert seen((50, 1000), (64, 1000)).did_as_much_with(KIND, 64) is None


def test_one_observation_proves_nothing() -> None:
    once = seen((16, 1000), (64, 1000), times=1)
    assert once.did_as_much_with(KIND, 64) is None
    assert not seen((16, 250), (64, 1000), times=1).has_grown(KIND, 64)


def test_one_bad_moment_does_not_make_it_full() -> None:
    grown = seen((8, 400), (32, 1600))
    grown.observe(KIND, 32, 400)
    assert grown.did_as_much_with(KIND, 32) is None


def test_kinds_are_not_compared_and_only_some_are_kept() -> None:
    flat = seen((8, 400), (64, 410))
    assert flat.did_as_much_with("writes", 64) is None
    for number in range(100):
        flat.observe(number, 8, 400)
    assert flat.did_as_much_with(KIND, 64) is None


def test_nothing_at_a_time_is_nothing_to_learn_from() -> None:
    empty = seen((0, 100), (8, 0), (-1, 5))
    assert empty.did_as_much_with(KIND, 0) is None
    assert not empty.has_grown(KIND, 0)
