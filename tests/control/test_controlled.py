# SPDX-License-Identifier: BSD-2-Clause
"""A controller on a real server under real load: memory is mapped, and everything is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.control.live import LIMIT_S, MIB, loaded, mapped, serve, serving, told, wait_for

from livedma.control.running import Options
from livedma.nfs.control import Control, ControlError
from livedma.nfs.load import Plan

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def kept(control: Control) -> list[dict[str, Any]]:
    """Checks of what had helped. On a slow machine others may come before."""
    return [one for one in told(control, "check") if ": keep" in one["line"]]


def test_memory_is_mapped_while_everything_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, Options(ahead_s=0.0)) as control:
        with loaded() as results:
            wait_for(lambda: mapped(control) > 7 * MIB)
            snapshot = control.ask("snapshot")
            assert len(snapshot["sessions"]) > 30
            (connection,) = snapshot["connections"]
            inside = connection["inside"]
            assert inside["credits"] > inside["buffers"] > 100
            wait_for(lambda: kept(control))
        (result,) = results
        assert not result.refused
        events = control.ask("decisions")["events"]
        # Other limits may come before: files are written first.
        begin = next(i for i, one in enumerate(events) if one["data"].get("actions"))
        story = [one["kind"] for one in events[begin:] if one["kind"] != "source"]
        assert story[:3] == ["plan", "done", "check"]
        assert "degraded" in [one["kind"] for one in events[:begin]]
        assert "DMA memory" in [one["data"]["limit"] for one in told(control, "why")]
        wait_for(lambda: not control.ask("snapshot")["connections"])


def test_memory_is_mapped_before_calls_wait(tmp_path: Path) -> None:
    """On a busy machine a ramp may look unsteady, or as if something else were short: then memory
    is mapped later, and the next client's connection begins anew.
    """
    plan = Plan(sessions=32, depth=3, size=65536, seconds=LIMIT_S, ramp=8.0)
    with serving(tmp_path, Options()) as control:
        for _ in range(4):
            with loaded(plan):
                wait_for(lambda: mapped(control) > 7 * MIB)
            wait_for(lambda: not control.ask("snapshot", sessions=False)["connections"])
            if _ahead(control):
                break
        ahead = _ahead(control)[0]
        events = [one for one in control.ask("decisions")["events"] if one["kind"] != "source"]
        its = [one for one in events if one["connection"] == ahead["connection"]]
        begin = next(i for i, one in enumerate(its) if one["number"] == ahead["number"])
        assert [one["kind"] for one in its[begin - 1 : begin + 2]] == ["forecast", "plan", "done"]
        forecast = its[begin - 1]["data"]
        assert forecast["needed"] < forecast["buffers"]
        assert 0 <= forecast["full_s"] <= Options().ahead_s


def _ahead(control: Control) -> list[dict[str, Any]]:
    return [one for one in told(control, "plan") if one["text"].startswith("extend ahead: ")]


def test_static_only_tells(tmp_path: Path) -> None:
    with serving(tmp_path, Options(policy="static")) as control, loaded():
        wait_for(lambda: told(control, "why"))
        assert control.ask("why")["lines"]
        session = control.ask("snapshot")["sessions"][0]["id"]
        assert control.ask("why", session=session[:20])["session"] == session
        assert mapped(control) <= 4 * MIB
        assert control.ask("policy") == {"policy": "static", "dry_run": False}
        assert control.ask("policy", name="extend")["policy"] == "extend"
        wait_for(lambda: kept(control))


def test_sessions_use_the_slots_that_they_get(tmp_path: Path) -> None:
    plan = Plan(sessions=4, depth=4, size=65536, seconds=LIMIT_S)
    with serving(tmp_path, Options(), slots=2) as control, loaded(plan):
        wait_for(lambda: _slots_used(control) == [2] * 4)
        wait_for(lambda: _slots_used(control) == [4] * 4)
        assert "slots" in [one["data"]["limit"] for one in told(control, "why")]


def _slots_used(control: Control) -> list[int]:
    """By the load's sessions; its client has one of its own."""
    sessions = [one["inside"] for one in control.ask("snapshot")["sessions"]]
    return [one["slots_used_most"] for one in sessions if one["slots_asked"] == 4]


def test_a_dry_run_only_says_it(tmp_path: Path) -> None:
    with serving(tmp_path, Options(dry_run=True)) as control, loaded():
        plan = wait_for(lambda: told(control, "plan"))[0]
        assert plan["dry"] and plan["line"].endswith("(dry run)")
        assert mapped(control) <= 4 * MIB


def test_without_budget_sessions_are_refused_and_others_go_on(tmp_path: Path) -> None:
    with serve(tmp_path, "--budget", "6MiB", "--objective-p99", "1s") as served:
        control = served.control
        with loaded(Plan(sessions=64, depth=4, size=65536, seconds=LIMIT_S)):
            wait_for(lambda: told(control, "refuse"))
            snapshot = control.ask("snapshot", sessions=False)
            assert snapshot["host"]["budget_bytes"] == 6 * MIB
            assert snapshot["host"]["mapped_bytes"] <= 6 * MIB
            assert control.ask("sessions")
        wait_for(lambda: told(control, "admit"))
        lines = [one["line"] for one in control.ask("decisions")["events"]]
    log = served.log.read_text()
    assert all(line in log for line in lines)


def test_what_makes_no_sense_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, Options()) as control:
        for do, parameters in (
            ("policy", {"name": "magic"}),
            ("policy", {"name": 5}),
            ("decisions", {"after": "x"}),
            ("why", {"session": 5}),
            ("why", {"session": "there is none"}),
            ("decisions", {"wait": -1}),
            ("decisions", {"wait": float("nan")}),
        ):
            with pytest.raises(ControlError):
                control.ask(do, **parameters)
        assert control.ask("decisions", after=10**9, wait=0.1) == {"events": []}
