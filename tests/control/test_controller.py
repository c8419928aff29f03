# SPDX-License-Identifier: BSD-2-Clause
"""The controller against a simulated server: what it decides, does, checks and takes back."""

from __future__ import annotations

import pytest
from tests.control.plant import MIB, Deceived, Pipe, Plant, Truth, kinds, only

from livedma.control.act.controller import Controller
from livedma.control.diagnose.limits import Limit
from livedma.control.policy import policies
from livedma.control.policy.plan import Extend, SetCredits, SetSlots, Shrink

STORY = ["degraded", "why", "plan", "done", "check"]


def control(
    plant: Plant, policy: str = "extend", truth: type[Truth] = Truth, *, dry_run: bool = False
) -> Controller:
    return Controller(
        plant,
        lambda: truth(plant),
        plant,
        policies.by_name(policy),
        room=plant.room,
        dry_run=dry_run,
    )


def run(controller: Controller, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        controller.step()


def test_memory_is_mapped_until_it_is_no_limit_and_the_story_is_told() -> None:
    plant = Plant([Pipe(wanted=150)])
    controller = control(plant)
    run(controller, 10)
    assert kinds(controller.events) == [
        *STORY,
        *("plan", "done", "check"),
        "recovered",
    ]
    first = plant.done[0]
    assert first == Extend(1, 4 * MIB, 135, {})
    assert 150 <= plant.pipe.buffers < plant.pipe.credits
    lines = [one.line for one in controller.events.after()]
    assert lines[1] == "why       connection 1: DMA memory is the limit"
    assert lines[2] == "plan      connection 1: extend: map 4 MiB more, credits 64 -> 135"
    assert lines[4].startswith("check     connection 1: p99 ") and lines[4].endswith(": keep")


def test_memory_is_there_within_three_snapshots() -> None:
    plant = Plant([Pipe(wanted=10)])
    controller = control(plant)
    run(controller, 2)
    plant.pipe.wanted = 100
    for _ in range(3):
        controller.step()
    assert plant.done


def test_what_does_not_help_is_taken_back_once_and_not_tried_again_for_long() -> None:
    plant = Plant([Pipe(wanted=200)], width=40)
    controller = control(plant, truth=Deceived)
    run(controller, 60)
    assert kinds(controller.events) == [*STORY, "undo"]
    assert (plant.pipe.buffers, plant.pipe.credits) == (56, 64)
    assert only(controller.events, "check")[0].text.endswith("take it back")
    run(controller, 30)
    assert len(only(controller.events, "undo")) == 2
    run(controller, 90)
    assert len(only(controller.events, "undo")) == 2  # twice as long


def test_what_cannot_help_since_the_cpu_is_busy_by_now_is_kept() -> None:
    class Busy(Deceived):
        def limit(self, pipe: Pipe) -> Limit:
            return Limit.CPU if plant.done else super().limit(pipe)

    plant = Plant([Pipe(wanted=200)], width=40)
    controller = control(plant, truth=Busy)
    run(controller, 10)
    (check,) = only(controller.events, "check")
    assert check.text.endswith("by now CPU is the limit: keep")
    assert not only(controller.events, "undo")


def test_the_same_is_not_explained_twice_though_its_figures_change() -> None:
    plant = Plant([Pipe(wanted=60)], budget_bytes=4 * MIB)
    controller = control(plant)
    for left in range(20):
        plant.budget_bytes = 4 * MIB + left
        run(controller, 0.5)
    assert kinds(controller.events) == ["degraded", "why"]


@pytest.mark.parametrize("policy", ["extend", "spread", "migrate", "static"])
def test_a_saturated_store_is_left_alone_and_that_is_said_once(policy: str) -> None:
    plant = Plant([Pipe(wanted=200)], width=40)
    controller = control(plant, policy)
    run(controller, 20)
    assert not plant.done
    assert [one.line for one in controller.events.after()][1:] == [
        f"why       connection 1: storage is the limit; {policy} leaves it as it is"
    ]


@pytest.mark.parametrize("policy", ["extend", "spread", "migrate"])
def test_where_credits_are_the_limit_they_are_raised(policy: str) -> None:
    plant = Plant([Pipe(wanted=50, credits=16)])
    controller = control(plant, policy)
    run(controller, 10)
    assert plant.done == [SetCredits(1, 32), SetCredits(1, 64)]
    assert kinds(controller.events)[-1] == "recovered"


@pytest.mark.parametrize("policy", ["extend", "spread", "migrate"])
def test_where_slots_are_the_limit_they_are_raised(policy: str) -> None:
    plant = Plant([Pipe(wanted=30, slots=8)])
    controller = control(plant, policy)
    run(controller, 10)
    assert [type(one) for one in plant.done] == [SetSlots, SetSlots]
    assert plant.pipe.slots == 32


def test_who_asked_for_few_slots_gets_no_more() -> None:
    plant = Plant([Pipe(wanted=30, slots=8, slots_asked=8)])
    controller = control(plant)
    run(controller, 5)
    assert not plant.done
    assert kinds(controller.events) == ["degraded", "why"]


def test_slots_grow_with_memory_if_they_would_be_the_next_limit() -> None:
    plant = Plant([Pipe(wanted=100, slots=64, slots_asked=100)])
    controller = control(plant, truth=Deceived)
    run(controller, 1)
    (action,) = plant.done
    assert isinstance(action, Extend) and list(action.slots.values()) == [100]


def test_static_tells_and_does_nothing() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=4 * MIB)
    controller = control(plant, "static")
    run(controller, 20)
    assert kinds(controller.events) == ["degraded", "why"]
    assert not plant.done and not plant.refuses


def test_a_dry_run_says_what_it_would_do_once() -> None:
    plant = Plant([Pipe(wanted=200)], budget_bytes=64 * MIB)
    controller = control(plant, dry_run=True)
    run(controller, 30)
    assert kinds(controller.events) == ["degraded", "why", "plan"]
    assert controller.events.after()[-1].line.endswith("(dry run)")
    assert not plant.done


def test_memory_that_nobody_needs_is_given_back() -> None:
    plant = Plant([Pipe(wanted=220)])
    controller = control(plant)
    run(controller, 15)
    most = plant.pipe.mapped_bytes
    plant.pipe.wanted = 5
    run(controller, 30)
    assert most > 14 * MIB
    assert plant.pipe.mapped_bytes == 4 * MIB
    assert plant.pipe.credits == 64
    assert only(controller.events, "shrink") and isinstance(plant.done[-1], Shrink)


def test_a_pause_is_no_reason_to_give_memory_back() -> None:
    plant = Plant([Pipe(wanted=220)])
    controller = control(plant)
    run(controller, 15)
    for _ in range(10):
        plant.pipe.wanted = 0
        run(controller, 3)
        plant.pipe.wanted = 220
        run(controller, 1)
    assert not only(controller.events, "shrink")


@pytest.mark.slow
def test_a_tide_of_ten_minutes_moves_memory_both_ways() -> None:
    plant = Plant([Pipe(wanted=8)])
    controller = control(plant)
    run(controller, 5)
    start = plant.pipe.mapped_bytes
    mapped, taken = [], []
    for second in range(600):
        phase = second % 120 / 60
        plant.pipe.wanted = round(8 + 216 * (phase if phase < 1 else 2 - phase))
        run(controller, 1)
        mapped.append(plant.pipe.mapped_bytes)
        taken.append(plant.pipe.wanted)
    run(controller, 30)
    highs = [max(mapped[at : at + 120]) for at in range(0, 600, 120)]
    lows = [min(mapped[at : at + 120]) for at in range(30, 570, 120)]
    assert min(highs) > 13 * MIB
    assert max(lows) < 8 * MIB
    assert len(only(controller.events, "undo")) <= 1
    assert abs(plant.pipe.mapped_bytes - start) <= start / 10
    changes = len(only(controller.events, "done", "shrink"))
    assert changes <= 5 * 12  # up in three steps, down in some more: no pumping


@pytest.mark.slow
def test_a_quick_tide_makes_it_patient() -> None:
    plant = Plant([Pipe(wanted=220)])
    controller = control(plant)
    for _ in range(30):
        plant.pipe.wanted = 220
        run(controller, 8)
        plant.pipe.wanted = 5
        run(controller, 8)
    shrinks = only(controller.events, "shrink")
    assert 1 <= len(shrinks) <= 12


def test_each_connection_has_its_own_story() -> None:
    plant = Plant([Pipe(number=1, wanted=10), Pipe(number=2, wanted=100)])
    controller = control(plant)
    run(controller, 5)
    assert {one.connection for one in controller.events.after()} == {2}
    assert plant.pipes[0].buffers == 56 < plant.pipes[1].buffers


def test_a_connection_that_ends_while_it_is_judged_is_forgotten() -> None:
    plant = Plant([Pipe(wanted=100)])
    controller = control(plant)
    run(controller, 0.5)
    plant.pipes.clear()
    run(controller, 1)
    assert controller.events.after()[-1].text == "it has ended before it could be judged"
    assert controller.view() is not None


def test_the_policy_may_change_while_it_runs() -> None:
    plant = Plant([Pipe(wanted=100)])
    controller = control(plant, "static")
    run(controller, 3)
    controller.policy = policies.by_name("extend")
    run(controller, 3)
    assert plant.pipe.buffers == 56 + 64
    assert kinds(controller.events)[:4] == ["degraded", "why", "policy", "why"]
    assert only(controller.events, "policy")[0].text == "static -> extend"


def test_credits_grow_with_buffers_up_to_the_end_of_the_window() -> None:
    plant = Plant([Pipe(wanted=1000)])
    controller = control(plant)
    run(controller, 30)
    pipe = plant.pipe
    assert pipe.buffers < pipe.credits
    assert pipe.room_bytes < MIB
    assert pipe.mapped_bytes <= pipe.window_bytes
