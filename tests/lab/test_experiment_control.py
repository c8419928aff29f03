# SPDX-License-Identifier: BSD-2-Clause
"""Experiments with the controller beside the ramp: situations, statistics, answers from data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from livedma.control.diagnose.limits import Limit
from livedma.lab.experiment.ahead import FORECAST, REACTIVE, Aheads, Watched
from livedma.lab.experiment.diagnosis import Diagnoses
from livedma.lab.experiment.generated import LIMITS, generate
from livedma.lab.experiment.quantities import Value
from livedma.lab.experiment.runs import Row, Runs
from livedma.lab.experiment.situation import Situation
from livedma.lab.experiment.statistic import quantile, reversals, share_of_clusters
from livedma.lab.experiment.step import CONTROLLER, HAND, Steps
from livedma.lab.experiment.tide import Tide, Tides, level_at

_INLINE, _BUFFER = 8 << 10, 64 << 10


def at_a_time(one: Situation) -> dict[Limit, float]:
    """How many calls each of the things that may be short lets be under way."""
    part = int(one.mapped.partition("/")[2])
    buffers = (one.window_bytes // part - one.credits * _INLINE) // _BUFFER
    return {
        Limit.MEMORY: buffers,
        Limit.CREDITS: one.credits,
        Limit.SLOTS: one.sessions * min(one.slots, one.depth),
        Limit.STORAGE: one.store_width or 10_000,
    }


class TestGenerated:
    def test_limits_take_turns(self) -> None:
        found = [generate(number).limit for number in range(200)]
        assert set(found) == set(LIMITS)
        assert max(map(found.count, LIMITS)) - min(map(found.count, LIMITS)) <= 1

    def test_the_same_number_is_the_same_situation(self) -> None:
        assert [generate(n) for n in range(40)] == [generate(n) for n in range(40)]
        assert len({generate(n) for n in range(200)}) > 190
        assert generate(3, seed=1) != generate(3, seed=2)

    @pytest.mark.parametrize("number", range(200))
    def test_what_is_short_is_short(self, number: int) -> None:
        """By a quarter, against all else that is there, and against what is asked for."""
        one = generate(number)
        found = at_a_time(one)
        asked = one.sessions * one.depth
        if one.limit in found:
            least = found.pop(one.limit)
            if one.limit is not Limit.SLOTS:
                found[Limit.SLOTS] = asked  # a client that asks for no more than that
            assert least * 1.1 <= min(found.values())
            assert least * 1.25 <= asked
        elif one.limit is Limit.NOTHING:
            assert one.rate is not None
            assert one.rate * one.store_delay_s < 0.5 * min(*found.values(), asked)
        else:
            assert asked < min(found[Limit.MEMORY], found[Limit.CREDITS])

    @pytest.mark.parametrize("number", range(200))
    def test_processors_are_left_alone_unless_they_are_the_limit(self, number: int) -> None:
        one = generate(number)
        if one.limit in (Limit.CPU, Limit.NETWORK, Limit.NOTHING):
            assert (one.store_delay_s == 0) == (one.limit is Limit.CPU)
            return
        assert min(at_a_time(one).values()) / one.store_delay_s <= 2_600


class TestStatistics:
    def test_a_share_of_clusters(self) -> None:
        found = share_of_clusters([(20, 20)] * 9 + [(0, 20)])
        assert found is not None
        assert found.value == pytest.approx(0.9)
        assert found.low <= 0.75 and found.high == 1.0

    def test_an_interval_does_not_shrink_with_what_resembles_itself(self) -> None:
        few = share_of_clusters([(1, 1)] * 9 + [(0, 1)])
        many = share_of_clusters([(1000, 1000)] * 9 + [(0, 1000)])
        assert few == many

    def test_nothing_has_no_share(self) -> None:
        assert share_of_clusters([]) is None
        assert share_of_clusters([(0, 0)]) is None

    def test_quantiles(self) -> None:
        values = list(range(100))
        assert (quantile(values, 0.95), quantile(values, 1.0), quantile([7], 0.5)) == (95, 99, 7)

    @pytest.mark.parametrize(
        ("series", "turns"),
        [
            ([], 0),
            ([4, 4, 4], 0),
            ([4, 8, 12, 16], 0),
            ([4, 8, 16, 12, 4], 1),
            ([4, 16, 4, 16, 4], 3),
            ([4, 16, 15.5, 16, 15.5, 4], 1),  # a ripple is no turn
            ([16, 4, 16], 1),
        ],
    )
    def test_reversals(self, series: Sequence[float], turns: int) -> None:
        assert reversals(series, 1.0) == turns


class TestDiagnosis:
    def rows(self, named: Limit, true: Limit, blamed: int = 0, number: int = 0) -> Row:
        said: dict[str, Value] = {f"said_{one.name.lower()}": 0 for one in Limit}
        said[f"said_{named.name.lower()}"] = 20
        share = float(named is true)
        measures = {"windows": 20, "right_share": share, "memory_blamed": blamed, **said}
        return Row({"number": number, "limit": true.value}, 0, 0, measures)

    def test_all_right(self) -> None:
        rows = Runs([self.rows(one, one) for one in LIMITS for _ in range(3)])
        said = Diagnoses().answer(rows)
        assert said[0].startswith("The true limit was named in 100 % of 420 snapshots of 21")
        assert "at least the 95%" in said[0]
        assert "in 0 of 18 situations in which it is not the limit" in said[1]
        assert len(said) == 2

    def test_some_wrong(self) -> None:
        wrong = self.rows(Limit.MEMORY, Limit.STORAGE, blamed=3)
        rows = Runs([*(self.rows(one, one) for one in LIMITS), wrong])
        said = Diagnoses().answer(rows)
        assert "fewer than the 95%" in said[0]
        assert "in 1 of 7 situations" in said[1]
        assert said[2] == "Short of storage: 50 % right (DMA memory 20, storage 20)."

    def test_the_matrix(self) -> None:
        rows = Runs([self.rows(Limit.CPU, Limit.STORAGE), self.rows(Limit.CPU, Limit.CPU)])
        (matrix,) = Diagnoses().sections(rows)
        by_name = {line[0]: dict(zip(matrix.head, line, strict=True)) for line in matrix.body}
        assert set(by_name) == {"storage", "CPU"}
        assert by_name["storage"]["CPU"] == by_name["CPU"]["CPU"] == "20"
        assert by_name["storage"]["storage"] == "0"

    def test_nothing_measured(self) -> None:
        assert Diagnoses().answer(Runs([])) == ["Too little was measured for an answer."]


class TestAhead:
    def rows(self, waited: Sequence[int], mapped: Sequence[float], turns: int = 3) -> Runs:
        return Runs(
            [
                Row(
                    {"control": control},
                    turn,
                    0,
                    {
                        "waited": waited[which],
                        "mapped_mean_bytes": mapped[which] * (1 << 20),
                        "p99_us": 40_000 + 1000 * turn,
                        "ahead": 3 * which,
                        "undos": 0,
                        "errors": 0,
                    },
                )
                for which, control in enumerate((REACTIVE, FORECAST))
                for turn in range(turns)
            ]
        )

    def test_fewer_wait(self) -> None:
        waits, mapped, _, steps = Aheads().answer(self.rows([5000, 100], [11, 12.5]))
        assert "With a forecast 100 calls waited for memory, without one 5,000" in waits
        assert "0.02x" in waits and waits.endswith("(reached).")
        assert "1.14x" in mapped and mapped.endswith("(reached).")
        assert steps.startswith("In 3 runs with a forecast 9 steps were made ahead, and 0 undone;")

    def test_it_does_not_help_and_costs_much(self) -> None:
        waits, mapped, *_ = Aheads().answer(self.rows([5000, 4000], [8, 16]))
        assert waits.endswith("(NOT reached).") and mapped.endswith("(NOT reached).")

    def test_nothing_measured(self) -> None:
        assert Aheads().answer(Runs([])) == ["Too little was measured for an answer."]

    def test_memory_is_averaged_over_time(self) -> None:
        found = Watched(mapped=[(0.0, 4), (1.0, 4), (1.1, 8), (2.0, 8)])
        assert found.mean_bytes == pytest.approx((4 * 1.1 + 8 * 0.9) / 2)
        assert Watched(mapped=[(0.0, 4)]).mean_bytes == 4
        assert Watched().mean_bytes == 0


class TestTide:
    def rows(self, mapped: Sequence[int], undos: int = 0) -> Runs:
        sessions = [8, 64, 8, 64, 8]
        return Runs(
            [
                Row(
                    {"policy": "extend", "at_s": float(at)},
                    0,
                    0,
                    {
                        "mapped_bytes": bytes_ << 20,
                        "first_bytes": 4 << 20,
                        "sessions": there,
                        "errors": 0,
                        "extensions": 4,
                        "shrinks": 2,
                        "undos": undos,
                    },
                )
                for at, (bytes_, there) in enumerate(zip(mapped, sessions, strict=True))
            ]
        )

    def test_a_triangle_between_low_and_high(self) -> None:
        tide = Tide(seconds=80, period_s=40, rest_s=30)
        assert [level_at(at_s, tide) for at_s in (0, 10, 20, 30, 40, 60, 79.999, 80, 500)] == [
            8, 36, 64, 36, 8, 64, 8, 8, 8,
        ]  # fmt: skip

    def test_memory_follows(self) -> None:
        (said,) = Tides().answer(self.rows([4, 16, 4, 16, 4]))
        assert "from 4 MiB to 16 MiB and ended at 1x of what it was (back)" in said
        assert "it turned 3 times, the tide 3 times (calm)" in said

    def test_several_runs_are_one_answer_first(self) -> None:
        runs = [
            replace(row, repetition=turn)
            for turn, mapped in enumerate(([4, 16, 4, 16, 4], [4, 12, 4, 12, 4], [4, 14, 4, 14, 8]))
            for row in self.rows(mapped)
        ]
        first, *each = Tides().answer(Runs(runs))
        assert first == (
            "In 3 runs under extend, memory went up to 14 MiB (12 MiB to 16 MiB) and ended at 1x "
            "(1x to 2x) of what it was: it was back in 2 of 3."
        )
        assert len(each) == 3

    def test_memory_stays(self) -> None:
        (said,) = Tides().answer(self.rows([4, 16, 16, 16, 16]))
        assert "(NOT back)" in said

    def test_less_than_at_first_is_not_back_either(self) -> None:
        (said,) = Tides().answer(self.rows([4, 16, 4, 16, 3]))
        assert "ended at 0.75x of what it was (NOT back)" in said

    def test_more_than_one_undo(self) -> None:
        (said,) = Tides().answer(self.rows([4, 16, 4, 16, 4], undos=2))
        assert "(NOT calm)" in said


class TestStep:
    def rows(self, use_ms: float, delay_ms: float) -> Runs:
        by_controller = [
            Row({"by": CONTROLLER, "step": 0}, turn, 0, {"degraded_to_use_ns": use_ms * 1e6})
            for turn in range(4)
        ]
        by_hand = [
            Row({"by": HAND, "step": step}, 0, 0, {"delay_ns": delay_ms * 1e6 * (step == 9)})
            for step in range(10)
        ]
        return Runs([*by_controller, *by_hand])

    def test_the_worst_counts(self) -> None:
        good, bad = Steps().answer(self.rows(200, 3)), Steps().answer(self.rows(600, 12))
        assert good[0].endswith("wanted is 500 ms at most: reached.")
        assert good[1].endswith("wanted is 10 ms at most: reached.")
        assert "worst 3 ms of 10 steps" in good[1]
        assert all(one.endswith("NOT.") for one in bad)

    def test_what_chance_does_is_told(self) -> None:
        rows = [*self.rows(200, 3), Row({"by": HAND, "step": 10}, 0, 0, {"delay_ns": -7e6})]
        assert "without a step was 7 ms longer" in Steps().answer(Runs(rows))[2]
        assert not any("chance" in one for one in Steps().answer(self.rows(200, 3)))

    def test_medians_are_told_beside(self) -> None:
        delays = [3e6 * (step == 9) for step in range(10)]
        assert f"median {statistics.median(delays):.0f} ns" in Steps().answer(self.rows(1, 3))[1]
