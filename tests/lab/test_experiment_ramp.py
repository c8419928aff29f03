# SPDX-License-Identifier: BSD-2-Clause
"""The ramp: its answers follow from the data, and its rows, files and page say what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from livedma.control.diagnose.limits import Limit
from livedma.lab.experiment import ablations, data
from livedma.lab.experiment.quantities import Value
from livedma.lab.experiment.ramp import Ramp
from livedma.lab.experiment.ramp_answer import BARS, MEMORY, answer, sections
from livedma.lab.experiment.ramp_level import COLUMNS
from livedma.lab.experiment.report import Report
from livedma.lab.experiment.results import write
from livedma.lab.experiment.runs import Row, Runs
from livedma.lab.experiment.settling import settle
from livedma.lab.experiment.wording import confidence

#: What programs that read results.json rely on.
PROMISED = {
    "policy",
    "repeat",
    "sessions",
    "ops_per_s",
    "bytes_per_s",
    "p50_us",
    "p99_us",
    "errors",
    "reconnects",
    "connections",
    "mapped_bytes",
    "refused",
}
LEVELS = (1, 32, 64, 96)
FULL = {("extend", 64), ("extend", 96)}

GOOD = {"static": 1.0, "spread": 2.3, "migrate": 2.8, "extend": 3.0}


def row(situation: str, policy: str, sessions: int, turn: int, **changed: Value) -> Row:
    """As if a connection could do what 19 sessions ask for, and a policy so many times that."""
    gain = GOOD[policy] * (0.5 if turn == 1 else 1)  # all is slower in the second turn
    ops = min(sessions, 19 * gain) * 150.0
    measures: dict[str, Value] = {
        "ops_per_s": ops,
        "bytes_per_s": ops * 65536,
        "p50_us": sessions * 3 / ops * 1e6,
        "p99_us": sessions * 3 / ops * 1.1e6,
        "errors": 0,
        "reconnects": 0,
        "connections": 1,
        "mapped_bytes": 4 << 20,
        "refused": 0,
        "buffers_first": 56,
        "buffers": 56,
        "credits_first": 64,
        "credits": 64,
        "actions_meanwhile": 0,
        "limits": "DMA memory",
        "decisions": "  1.00 s  plan      extend\n  1.10 s  done      in 3 ms" if gain > 1 else "",
    }
    point = {"situation": situation, "policy": policy, "sessions": sessions}
    return Row(point, turn, turn, {**measures, **changed})


def runs(policies: tuple[str, ...] = tuple(GOOD), **changed: Value) -> Runs:
    """changed: of extend, at the levels from 64 on."""
    return Runs(
        [
            row(MEMORY, policy, level, turn, **(changed if (policy, level) in FULL else {}))
            for policy in policies
            for turn in range(3)
            for level in LEVELS
        ]
    )


def beside(name: str, **changed: Value) -> list[Row]:
    return [
        row(name, policy, 16, turn, **({**changed} if policy == "extend" else {}))
        for policy in ("static", "extend")
        for turn in range(2)
    ]


def reached(found: Runs) -> dict[tuple[str, str], bool]:
    return {
        (bar.policy, bar.measure): bar.is_met(spread)
        for bar in BARS
        if (spread := bar.found(found)) is not None
    }


class TestAnswer:
    def test_a_gain_is_taken_within_a_turn(self) -> None:
        """The slow second turn changes no ratio."""
        first = answer(runs())[0]
        assert first.startswith("With 64 sessions extend gives 3x (3x to 3x) the bandwidth")
        assert "at 0.333x (0.333x to 0.333x) its p99: 1 connection, 4 MiB mapped" in first
        assert "0 errors and 0 reconnects in all runs" in first

    def test_where_static_ends(self) -> None:
        (said,) = [one for one in answer(runs()) if one.startswith("Under static")]
        assert (
            "follows the sessions up to 32; with 64 it is 187 MB/s, 1x (1x to 1x) of that" in said
        )

    def test_without_static_there_is_nothing_to_compare_with(self) -> None:
        assert answer(runs(("extend",))) == ["Too little was measured for an answer."]

    def test_moved_sessions_and_their_pause(self) -> None:
        said = answer(runs(moved=64, pause_us=31_000.0))[0]
        assert "64 sessions moved, none without an answer for more than 31 ms" in said

    def test_acting_while_measured_is_said(self) -> None:
        assert not any("acted meanwhile" in one for one in answer(runs()))
        assert any(
            "In 6 of 48 measurements the controller acted meanwhile" in one
            for one in answer(runs(actions_meanwhile=1))
        )

    @pytest.mark.parametrize(
        ("buffers", "said"), [(56, "extended in 0 of 2 runs"), (120, "extended in 2 of 2 runs")]
    )
    def test_extension_is_judged_by_buffers_not_words(self, buffers: int, said: str) -> None:
        rows = beside("storage", buffers=buffers, limits="storage")
        found = answer(Runs([*runs(), *rows]))[-1]
        assert said in found
        assert "storage: storage" in found


class TestBars:
    def test_all_are_reached(self) -> None:
        assert set(reached(runs()).values()) == {True}

    @pytest.mark.parametrize(
        ("measure", "value"),
        [
            ("bytes_per_s", 2.4 * 19 * 150 * 65536 / 2),
            ("p99_us", 1e6),
            ("errors", 1),
            ("reconnects", 1),
            ("refused", 1),
            ("connections", 2),
        ],
    )
    def test_each_can_be_missed(self, measure: str, value: float) -> None:
        found = reached(runs(**{measure: value}))
        assert [key for key, is_met in found.items() if not is_met] == [("extend", measure)]
        (table,) = [
            one for one in sections(runs(**{measure: value})) if one.head[-1:] == ("reached",)
        ]
        assert [line[0] for line in table.body if line[-1] == "NO"] == ["extend"]

    def test_sessions_may_be_refused_beyond_full_load(self) -> None:
        rows = [
            row(MEMORY, str(one.point["policy"]), 96, one.repetition, refused=20)
            if one.point["sessions"] == 96
            else one
            for one in runs()
        ]
        assert reached(Runs(rows))["extend", "refused"]

    def test_one_bad_run_of_what_must_never_be(self) -> None:
        rows = [*runs(), row(MEMORY, "migrate", 8, 2, errors=1)]
        assert not reached(Runs(rows))["migrate", "errors"]


class TestFiles:
    @pytest.fixture
    def written(self, tmp_path: Path) -> Path:
        rows = Runs([*runs(), *beside("storage", limits="storage")])
        write(Report(Ramp(), "quick", 1, rows, 1.0, {"processor": "fast"}), tmp_path)
        return tmp_path

    def test_rows_for_programs(self, written: Path) -> None:
        rows: list[dict[str, Any]] = json.loads((written / "results.json").read_text())
        assert isinstance(rows, list)
        assert len(rows) == 4 * 3 * len(LEVELS)
        assert all(PROMISED <= set(one) for one in rows)
        assert {one["repeat"] for one in rows} == {0, 1, 2}
        assert {one["policy"] for one in rows} == set(GOOD)
        last = rows[-1]
        assert last["decisions"] == ["  1.00 s  plan      extend", "  1.10 s  done      in 3 ms"]

    def test_what_is_beside_the_ramp_is_not_among_its_rows(self, written: Path) -> None:
        rows = json.loads((written / "results.json").read_text())
        assert {one["situation"] for one in rows} == {MEMORY}
        others = json.loads((written / "ablations.json").read_text())
        assert {one["situation"] for one in others} == {"storage"}

    def test_parquet_has_all(self, written: Path) -> None:
        found, _ = data.load(written / "ramp.parquet", Ramp())
        assert len(found.rows) == 4 * 3 * len(LEVELS) + 4

    def test_the_page(self, written: Path) -> None:
        html = (written / "ramp.html").read_text()
        for text in (
            "Set-up",
            "What it has to reach",
            "Where memory is not the limit",
            "Decisions",
            "What it does not show",
            "75.0% confidence",  # three turns were made up, five are the rule: those of the ratios
            "93.8% confidence",
            "1.10 s  done      in 3 ms",
            "livedma experiment ramp --seed 1 --out DIR",
        ):
            assert text in html


def test_promised_columns_are_measured() -> None:
    assert PROMISED - {"policy", "repeat", "sessions"} <= {column.name for column in COLUMNS}


def test_points_beside_the_ramp_take_part_in_some_turns() -> None:
    ramp = Ramp()
    main, side = ({"situation": name, "policy": "extend"} for name in (MEMORY, "CPU"))
    assert [ramp.takes_part(main, turn, "quick") for turn in range(5)] == [True] * 5
    assert [ramp.takes_part(side, turn, "quick") for turn in range(5)] == [True] * 2 + [False] * 3
    assert ramp.takes_part(side, 4, "full")


def test_a_disk_instead_of_a_delay() -> None:
    ramp = Ramp()
    ramp.use_store("disk")
    assert ramp.situation.is_on_disk and not ramp.situation.store_delay_s
    assert ramp.options() == " --store disk"
    assert {point["situation"] for point in ramp.points("full")} == {MEMORY}


def test_situations_say_what_is_short() -> None:
    assert ablations.MEMORY.limit is Limit.MEMORY
    assert Limit.MEMORY not in {one.limit for one in ablations.BESIDE.values()}


class _Clock:
    """Time passes only while somebody waits for events."""

    def __init__(self, *events: tuple[float, str]) -> None:
        self.now_s, self._events = 100.0, [(100.0 + at_s, kind) for at_s, kind in events]

    def __call__(self) -> float:
        return self.now_s

    def ask(self, wait_s: float) -> list[dict[str, Any]]:
        end_s = self.now_s + wait_s
        if not self._events or self._events[0][0] > end_s:
            self.now_s = end_s
            return []
        self.now_s, kind = self._events.pop(0)
        return [{"kind": kind, "connection": 1}]


class TestSettling:
    def test_nothing_happens(self) -> None:
        clock = _Clock()
        found = settle(clock.ask, 1.5, 8.0, clock)
        assert (found.took_s, found.is_quiet, found.events) == (1.5, True, [])

    def test_each_action_begins_it_anew(self) -> None:
        clock = _Clock((1.0, "plan"), (1.1, "done"), (2.2, "check"))
        found = settle(clock.ask, 1.5, 8.0, clock)
        assert found.took_s == pytest.approx(3.7)
        assert found.is_quiet
        assert [event["kind"] for event in found.events] == ["plan", "done", "check"]

    def test_what_was_done_has_to_be_checked(self) -> None:
        clock = _Clock((0.5, "done"), (2.5, "check"))
        assert settle(clock.ask, 1.5, 8.0, clock).took_s == pytest.approx(4.0)
        clock = _Clock((0.5, "done"))
        assert not settle(clock.ask, 1.5, 8.0, clock).is_quiet

    def test_words_are_no_actions(self) -> None:
        clock = _Clock((1.0, "degraded"), (1.2, "why"))
        assert settle(clock.ask, 1.5, 8.0, clock).took_s == pytest.approx(1.5)

    def test_it_is_bounded(self) -> None:
        clock = _Clock(*((i * 1.0, "done") for i in range(1, 100)))
        found = settle(clock.ask, 1.5, 8.0, clock)
        assert found.took_s == pytest.approx(8.0)
        assert not found.is_quiet


@pytest.mark.parametrize(("runs_", "said"), [(5, "93.8%"), (7, "98.4%"), (2, "say nothing")])
def test_confidence_of_a_range(runs_: int, said: str) -> None:
    assert said in confidence(runs_)
