# SPDX-License-Identifier: BSD-2-Clause
"""What the demo makes of a run: its outcome, rows, and the story in words."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livedma.cli import demo_page as page
from livedma.cli.demo_screen import Screen
from livedma.lab.outcome import Outcome
from livedma.lab.ramp import Moment, Ramp, Run

MIB = 1 << 20
WHY = "requests wait 5.4 ms for DMA memory: all 56 buffers are taken, 6 more are wanted"


def event(number: int, at_s: float, kind: str, text: str = "", **data: Any) -> dict[str, Any]:
    whole = {"number": number, "at_s": at_s, "wall_s": 0.0, "kind": kind, "connection": 1}
    return {**whole, "text": text, "data": data, "dry": False, "line": f"{kind} {text}"}


def interval(at_s: float, sessions: int, mb_per_s: float, p99_us: float) -> dict[str, Any]:
    return {
        "at_s": at_s,
        "sessions": sessions,
        "operations_per_s": mb_per_s * 10,
        "bytes_per_s": mb_per_s * 1e6,
        "latency_us": {"p50": p99_us / 2, "p99": p99_us, "max": p99_us},
        "errors": 0,
    }


def extending() -> Run:
    """Ten seconds: it degrades, is explained, and helped twice."""
    run = Run(Ramp(10.0), "extend", Path("/run/control"), "bpf+server")
    run.intervals = [interval(s, min(8 * s, 64), 20.0 * s, 40e3) for s in range(1, 11)]
    run.moments = [
        Moment(s, "bpf+server", ((4 if s < 3 else 8 if s < 5 else 12) * MIB,)) for s in range(11)
    ]
    actions = [{"action": "Extend", "connection": 1, "bytes": 4 * MIB, "credits": 128}]
    run.events = [
        event(1, 2.5, "degraded", "20 sessions"),
        event(2, 2.5, "why", WHY, limit="DMA memory"),
        event(3, 2.5, "plan", "extend: map 4 MiB more", actions=actions),
        event(4, 2.6, "done", "in 2.7 ms"),
        event(5, 3.7, "check", "p99 50 ms -> 40 ms, bandwidth +37 %: keep"),
        event(6, 4.5, "plan", "extend: map 4 MiB more", actions=actions),
        event(7, 4.6, "done", "in 2.9 ms"),
        event(8, 8.0, "recovered"),
    ]
    run.total = {"refused": [], "lost": [], "reconnects": 0}
    return run


def idle(policy: str = "static") -> Run:
    run = extending()
    run.policy, run.events = policy, []
    run.moments = [Moment(s, "server", (4 * MIB,)) for s in range(11)]
    run.intervals = [interval(s, 64, 50.0, 160e3) for s in range(1, 11)]
    return run


class TestOutcome:
    def test_of_what_helped(self) -> None:
        found = Outcome.of(extending())
        assert found.trouble is not None
        assert (found.trouble.at_s, found.trouble.sessions) == (2.5, 24)
        assert (found.trouble.why, found.trouble.limit) == (WHY, "DMA memory")
        assert found.trouble.relief_s == pytest.approx(0.1)
        assert found.done == {"Extend": 2}
        assert (found.mapped_first_bytes, found.mapped_bytes) == (4 * MIB, 12 * MIB)
        assert found.bytes_per_s == pytest.approx(170e6)  # of the seconds 7 to 10
        assert found.sessions == 64

    def test_of_nothing(self) -> None:
        found = Outcome.of(idle())
        assert found.trouble is None
        assert found.done == {}
        assert found.errors == found.undone == found.reconnects == 0

    def test_a_plan_that_failed_is_not_done(self) -> None:
        run = extending()
        run.events[3] = event(4, 2.6, "failed", "no room")
        found = Outcome.of(run)
        assert found.done == {"Extend": 1}
        assert found.trouble is not None
        assert found.trouble.relief_s == pytest.approx(2.1)

    def test_trouble_before_the_one_that_was_helped_is_another_story(self) -> None:
        run = extending()
        run.events = [
            event(1, 0.1, "degraded"),
            event(2, 0.1, "why", "the store is slow", limit="storage"),
            event(3, 1.2, "recovered"),
            *({**one, "number": one["number"] + 3} for one in run.events),
        ]
        run.events[3]["at_s"] = 2.0  # it got worse, and only later was it clear why
        found = Outcome.of(run)
        assert found.trouble is not None
        assert (found.trouble.at_s, found.trouble.why) == (2.0, WHY)
        assert found.trouble.relief_s == pytest.approx(0.1)

    def test_trouble_about_which_nothing_is_done(self) -> None:
        run = extending()
        run.events = run.events[:2]
        found = Outcome.of(run)
        assert found.trouble is not None
        assert found.trouble.relief_s is None
        assert found.trouble.why == WHY

    def test_what_went_wrong_counts(self) -> None:
        run = extending()
        run.intervals[4]["errors"] = 3
        run.events.append(event(9, 9.0, "undo", "taken back"))
        run.total = {"refused": ["session 7: NOSPC"], "lost": ["connection 0"], "reconnects": 1}
        found = Outcome.of(run)
        assert (found.errors, found.refused, found.reconnects, found.undone) == (4, 1, 1, 1)


class TestPage:
    def test_a_row_fits_whatever_is_in_it(self) -> None:
        moment = Moment(3599.0, "bpf", (5 * MIB,), frozenset({1}))
        row = page.row(3599.0, interval(3599.0, 64, 2940.0, 1.43e6), moment, Ramp())
        assert row == (
            "3599 s  64 sessions  2.94 GB/s  p99  1.43 s  mapped [#####...........]  degraded"
        )
        assert len(row) <= 80

    @pytest.mark.parametrize(
        ("mapped", "bar"),
        [
            ((4 * MIB,), "####............"),
            ((16 * MIB,), "################"),
            ((4 * MIB, 4 * MIB, 4 * MIB), "####|####|####.."),
            ((4 * MIB, 14 * MIB), "####|###########"),
        ],
    )
    def test_connections_are_side_by_side(self, mapped: tuple[int, ...], bar: str) -> None:
        row = page.row(1.0, interval(1.0, 64, 1.0, 1.0), Moment(1.0, "bpf", mapped), Ramp())
        assert row.endswith(f"mapped [{bar}]")

    def test_a_decision_is_folded_below_its_beginning(self) -> None:
        first, second = page.event_lines(event(1, 0.0, "why", WHY), several=False)
        assert first.startswith("        why    requests wait")
        assert second.startswith(" " * 15)
        assert second[15] != " "
        assert max(len(first), len(second)) <= 80

    def test_with_several_connections_it_says_of_which(self) -> None:
        (line,) = page.event_lines(event(1, 0.0, "done", "in 2 ms"), several=True)
        assert line == "        done   connection 1: in 2 ms"

    def test_what_rows_show_is_not_said_again(self) -> None:
        assert page.event_lines(event(1, 0.0, "recovered"), several=False) == []

    def test_the_story(self) -> None:
        told = "\n".join(page.story([Outcome.of(extending()), Outcome.of(idle())]))
        assert "degraded  after 2.5 s, with 24 sessions" in told
        assert "done      2 extensions, the first after 100 ms; 4 MiB -> 12 MiB" in told
        assert "gave      3.4 x the bandwidth of static, 0.25 x its p99" in told
        assert "Other programs" not in told
        assert max(map(len, told.splitlines())) <= 80

    def test_who_was_refused_is_part_of_it(self) -> None:
        run = extending()
        run.total = {"refused": ["session 62: NOSPC", "session 63: NOSPC"]}
        assert "  refused   2 sessions" in list(page.story([Outcome.of(run)]))

    def test_the_story_of_nothing(self) -> None:
        told = "\n".join(page.story([Outcome.of(idle())]))
        assert "degraded  never" in told
        assert "gave" not in told

    def test_beside_other_load_figures_are_no_measurement(self) -> None:
        run = idle()
        run.others_share = 0.6
        assert "Other programs took 60%" in "\n".join(page.story([Outcome.of(run)]))

    def test_without_privilege_it_says_what_is_different(self) -> None:
        stage: Any = SimpleNamespace(
            is_isolated=False,
            refusal=None,
            server_address="127.0.0.1",
            client_address="127.0.0.2",
        )
        small = Ramp(18.0, size=8192, window_bytes=3584 << 10, mapped_bytes=896 << 10)
        lines = list(page.heading(stage, small))
        assert lines[0].startswith("on loopback: server 127.0.0.1, client 127.0.0.2")
        assert lines[1] == "(root would get two hosts, and BPF on the wire between them)"
        assert lines[2] == "one connection: a window of 3.5 MiB of IOVA, 896 KiB of it mapped"
        assert max(map(len, lines)) <= 80


def test_rows_come_with_what_was_decided_in_them() -> None:
    file = StringIO()
    run, screen = extending(), Screen(file)
    later, run.intervals = run.intervals, []
    for one in later:
        run.intervals.append(one)
        screen.look(run)
    empty, first, *lines = file.getvalue().splitlines()
    assert empty == ""
    assert first == (
        "sessions pile up under extend, watched by BPF on the wire and the server itself"
    )
    beginnings = [line[:6].strip() or line.split()[0] for line in lines if line[:15].strip()]
    assert beginnings == [
        "1 s",
        *("3 s", "why", "plan", "done"),
        *("4 s", "check"),
        *("5 s", "plan", "done"),
        "8 s",
        "10 s",
    ]


def test_the_second_ramp_is_the_same_again() -> None:
    file = StringIO()
    screen = Screen(file)
    for run in (extending(), idle()):
        screen.look(run)
    assert "the same ramp under static, watched by BPF" in file.getvalue()
    assert file.getvalue().count("  10 s  64 sessions") == 2
