# SPDX-License-Identifier: BSD-2-Clause
"""The controller against a simulated server: memory that is mapped before calls wait for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.plant import MIB, Pipe, Plant, Truth, kinds, only

from livedma.control.act.controller import Controller
from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.policy import policies
from livedma.control.policy.plan import Action, Extend
from livedma.monitor.snapshot import Snapshot

AHEAD_S = 0.8
STORY = ["forecast", "plan", "done", "check"]


def control(
    plant: Plant, ahead_s: float = AHEAD_S, policy: str = "extend", *, dry_run: bool = False
) -> Controller:
    return Controller(
        plant,
        lambda: Truth(plant),
        plant,
        policies.by_name(policy),
        room=plant.room,
        dry_run=dry_run,
        ahead_s=ahead_s,
    )


def run(controller: Controller, plant: Plant, wanted: Iterable[float]) -> float:
    """Returns the mapped bytes, on average."""
    mapped = []
    for calls in wanted:
        plant.pipe.wanted = max(round(calls), 0)
        controller.step()
        mapped.append(plant.pipe.mapped_bytes)
    return sum(mapped) / len(mapped)


def ramp(low: float, high: float, seconds: float) -> list[float]:
    steps = round(10 * seconds)
    return [low + (high - low) * number / steps for number in range(steps)]


def hold(level: float, seconds: float) -> list[float]:
    return [level] * round(10 * seconds)


def tide(seconds: int, period_s: int, low: int, high: int) -> list[float]:
    half = [*ramp(low, high, period_s / 2), *ramp(high, low, period_s / 2)]
    return half * (seconds // period_s)


#: 64 sessions of 3 calls each, 16 a second: what `livedma load --sessions 64 --ramp 16/s` does.
RAMP = [*hold(0, 1), *ramp(0, 192, 4), *hold(192, 4)]


def test_a_ramp_finds_its_memory_mapped() -> None:
    waited, mapped = {}, {}
    for ahead_s in (0.0, AHEAD_S):
        plant = Plant([Pipe(each=3)])
        controller = control(plant, ahead_s)
        mapped[ahead_s] = run(controller, plant, RAMP)
        waited[ahead_s] = plant.waited
    assert waited[0.0] > 1000
    assert waited[AHEAD_S] <= waited[0.0] / 10
    assert mapped[AHEAD_S] <= 1.25 * mapped[0.0]
    lines = [one.line for one in controller.events.after()]
    assert kinds(controller.events)[:12] == 3 * STORY
    assert not only(controller.events, "degraded", "undo", "failed")
    assert lines[0].startswith("forecast  connection 1: 56 of 56 buffers in about ")
    assert "sessions more each second): " in lines[0]
    assert lines[1] == "plan      connection 1: extend ahead: map 4 MiB more, credits 64 -> 135"
    assert lines[3].endswith(", 56 were there; no call had to wait: keep")


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), jitter=st.floats(0, 0.1), per_s=st.floats(10, 60))
def test_ramps_of_all_kinds_wait_less(seed: int, jitter: float, per_s: float) -> None:
    """Where a load jumps by more than it grows while the forecast looks ahead, no forecast sees
    every jump; it still never costs a call its memory.
    """
    chance = random.Random(seed)
    wanted = [*hold(0, 1), *ramp(0, 180, 180 / per_s), *hold(180, 4)]
    noisy = [one * (1 + jitter * chance.uniform(-1, 1)) for one in wanted]
    waited = []
    for ahead_s in (0.0, AHEAD_S):
        plant = Plant([Pipe(each=3)], seed=seed)
        run(control(plant, ahead_s), plant, noisy)
        waited.append(plant.waited)
    grows_more = 180 * jitter <= per_s * AHEAD_S
    assert waited[1] <= waited[0] / (2 if grows_more else 1)


@pytest.mark.slow
def test_a_tide_of_ten_minutes_is_calm() -> None:
    mapped, waited = [], []
    for ahead_s in (0.0, AHEAD_S):
        plant = Plant([Pipe(each=3)])
        controller = control(plant, ahead_s)
        mapped.append(run(controller, plant, tide(600, 100, 24, 192)))
        waited.append(plant.waited)
    assert len(only(controller.events, "undo")) <= 1
    assert len(only(controller.events, "done", "shrink")) <= 12 * 6
    assert waited[1] <= waited[0] / 10
    assert mapped[1] <= 1.25 * mapped[0]


@pytest.mark.slow
@pytest.mark.parametrize(("level", "jitter"), [(30, 3), (40, 4), (45, 3), (50, 2), (54, 1)])
def test_a_noisy_load_makes_it_do_nothing(level: int, jitter: float) -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant)
    chance = random.Random(level)
    noisy = [min(chance.gauss(level, jitter), 56) for _ in range(6000)]
    run(controller, plant, noisy)
    assert not plant.done
    assert not only(controller.events, "forecast")


def test_a_step_up_is_left_to_those_who_wait_or_not_at_all() -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant)
    run(controller, plant, [*hold(20, 5), *hold(50, 30)])
    assert not plant.done
    run(controller, plant, hold(100, 5))
    assert kinds(controller.events)[:3] == ["degraded", "why", "plan"]


def test_a_spike_that_goes_away_is_given_back_and_trusted_less() -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant)
    spike = [*ramp(6, 45, 1), *ramp(45, 6, 0.5), *hold(6, 6)]
    run(controller, plant, [*hold(6, 5), *spike])
    assert kinds(controller.events) == [*STORY, "undo"]
    check, undo = controller.events.after()[-2:]
    assert check.text.endswith("so the forecast was wrong: take it back")
    assert undo.text == "taken back; no forecast is acted on for 60 s"
    assert (plant.pipe.mapped_bytes, plant.pipe.credits) == (4 * MIB, 64)
    run(controller, plant, spike * 6)  # 45 s
    assert len(plant.done) == 2
    run(controller, plant, [*hold(6, 10), *spike * 12])  # 100 s
    assert len(only(controller.events, "undo")) == 2  # then not for 120 s


def test_nearly_right_is_kept_until_it_is_not_needed() -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant)
    run(controller, plant, [*hold(6, 3), *ramp(6, 56, 1.5), *hold(56, 5)])
    assert kinds(controller.events) == STORY
    assert controller.events.after()[-1].text.endswith(": keep")
    run(controller, plant, hold(6, 10))
    assert plant.pipe.mapped_bytes == 4 * MIB
    assert not only(controller.events, "undo")


def test_sessions_that_do_nothing_are_no_reason() -> None:
    plant = Plant([Pipe(each=3, wanted=30)])
    controller = control(plant)
    for _ in range(100):
        plant.pipe.idle += 2
        controller.step()
    assert not kinds(controller.events)


def test_a_store_that_gets_slower_is_no_reason() -> None:
    plant = Plant([Pipe(each=3)], width=30)
    controller = control(plant)
    run(controller, plant, [*hold(29, 5), *ramp(29, 55, 3)])
    assert not plant.done


def test_a_short_budget_is_said_once_and_nobody_is_refused() -> None:
    plant = Plant([Pipe(each=3)], budget_bytes=4 * MIB + 1000)
    controller = control(plant)
    run(controller, plant, [*hold(0, 1), *ramp(0, 54, 2), *hold(54, 5)])
    assert kinds(controller.events) == ["forecast"]
    (said,) = controller.events.after()
    assert said.text.endswith("; 1000 bytes are left of this host's DMA memory")
    assert not plant.refuses and not plant.refused_on


def once() -> Callable[[Action], None]:
    failed: set[type[Action]] = set()

    def fail(action: Action) -> None:
        if type(action) not in failed:
            failed.add(type(action))
            raise MemoryError("none left")

    return fail


def test_a_step_that_fails_leaves_all_as_it_was_and_calls_that_wait_get_it_later() -> None:
    plant = Plant([Pipe(each=3)], failing=once())
    controller = control(plant)
    run(controller, plant, [*RAMP, *hold(192, 10)])
    assert kinds(controller.events)[:3] == ["forecast", "plan", "failed"]
    assert plant.pipe.buffers >= 184
    assert not plant.refuses


def test_what_cannot_be_taken_back_is_said() -> None:
    plant = Plant([Pipe(each=3)])

    def fail(action: Action) -> None:
        if not isinstance(action, Extend):
            raise OSError("busy")

    plant.failing = fail
    controller = control(plant)
    run(controller, plant, [*hold(6, 5), *ramp(6, 45, 1), *ramp(45, 6, 0.5), *hold(6, 4)])
    (undo,) = only(controller.events, "undo")
    assert undo.text.startswith("not all of it: Shrink could not be done")


@pytest.mark.parametrize("policy", ["static", "spread", "migrate"])
def test_other_policies_do_nothing_ahead(policy: str) -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant, policy=policy)
    run(controller, plant, [*hold(0, 1), *ramp(0, 54, 2), *hold(54, 5)])
    assert not plant.done and not kinds(controller.events)


def test_it_can_be_switched_off_while_it_runs() -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant)
    controller.ahead_s = 0.0
    run(controller, plant, [*hold(0, 1), *ramp(0, 54, 2)])
    assert not kinds(controller.events)


def test_a_dry_run_tells_it_once() -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant, dry_run=True)
    run(controller, plant, [*hold(0, 1), *ramp(0, 54, 2), *hold(54, 3)])
    assert kinds(controller.events) == ["forecast", "plan"]
    assert all(one.dry for one in controller.events.after())
    assert not plant.done


def test_another_limit_is_no_reason_to_map() -> None:
    class Blamed(Truth):
        def see(self, snapshot: Snapshot) -> tuple[Diagnosis, ...]:
            return tuple(replace(one, limit=Limit.CPU) for one in super().see(snapshot))

    plant = Plant([Pipe(each=3)])
    controller = Controller(
        plant,
        lambda: Blamed(plant),
        plant,
        policies.by_name("extend"),
        room=plant.room,
        ahead_s=AHEAD_S,
    )
    run(controller, plant, [*hold(0, 1), *ramp(0, 54, 2)])
    assert not plant.done


def test_a_connection_knows_its_room() -> None:
    plant = Plant([Pipe(each=3)])
    controller = control(plant)
    run(controller, plant, hold(30, 3))
    view = controller.view()
    assert view is not None
    (diagnosis,) = view.diagnoses
    assert diagnosis.room is not None and diagnosis.room.least == 8
    assert diagnosis.room_words.startswith("room for 8 more sessions like these")
    run(controller, plant, hold(0, 15))
    (diagnosis,) = controller.view().diagnoses  # type: ignore[union-attr]
    assert "not known yet" in diagnosis.room_words
