# SPDX-License-Identifier: BSD-2-Clause
"""New sessions are refused while there is no memory for those that are there."""

from __future__ import annotations

import pytest
from tests.control.plant import MIB, Pipe, Plant, kinds, only
from tests.control.test_controller import control, run

from livedma.control.act.by_hand import ByHand
from livedma.control.policy import policies

ACTIVE = ["extend", "spread", "migrate"]


@pytest.mark.parametrize("policy", ACTIVE)
def test_without_budget_new_sessions_are_refused_until_demand_falls(policy: str) -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=5 * MIB)
    controller = control(plant, policy)
    run(controller, 20)
    assert plant.refuses
    plant.pipe.wanted = 10
    run(controller, 1)
    assert plant.refuses  # not at once
    run(controller, 5)
    assert not plant.refuses
    assert [one.kind for one in only(controller.events, "refuse", "admit")] == ["refuse", "admit"]


def test_the_budget_binds_before_the_window_does() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=6 * MIB)
    controller = control(plant)
    run(controller, 20)
    assert 5 * MIB < plant.pipe.mapped_bytes <= 6 * MIB
    (why, *_) = [one for one in only(controller.events, "why") if "left" in one.text]
    assert "of this host's DMA memory" in why.text


def test_one_connection_cannot_take_what_another_has() -> None:
    plant = Plant([Pipe(number=1, wanted=1000), Pipe(number=2, wanted=1000)], budget_bytes=16 * MIB)
    controller = control(plant)
    run(controller, 20)
    mapped = [one.mapped_bytes for one in plant.pipes]
    assert sum(mapped) <= 16 * MIB and min(mapped) > 4 * MIB


def test_a_little_waiting_refuses_nobody() -> None:
    plant = Plant([Pipe(wanted=60)], budget_bytes=4 * MIB)
    controller = control(plant)
    run(controller, 20)
    assert kinds(controller.events) == ["degraded", "why"]
    assert not plant.refuses


def test_room_that_comes_back_is_used_and_sessions_are_admitted() -> None:
    plant = Plant([Pipe(wanted=200)], budget_bytes=4 * MIB)
    controller = control(plant)
    run(controller, 5)
    assert plant.refuses
    plant.budget_bytes = None
    run(controller, 15)
    assert not plant.refuses and plant.pipe.buffers > 200


def test_a_policy_that_refuses_nobody_admits() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=4 * MIB)
    controller = control(plant)
    run(controller, 5)
    assert plant.refuses
    controller.policy = policies.by_name("static")
    assert not plant.refuses


def test_what_is_refused_by_hand_stays_refused_until_it_is_admitted_by_hand() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=5 * MIB)
    controller = control(plant)
    by_hand = ByHand(controller)
    assert by_hand.refuse_sessions(True) == "set" and plant.refuses
    run(controller, 20)  # the policy would refuse them, and admit them again
    plant.pipe.wanted = 10
    run(controller, 20)
    controller.policy = policies.by_name("static")
    assert plant.refuses
    by_hand.refuse_sessions(False)
    assert not plant.refuses
    assert [one.data["is_refused"] for one in only(controller.events, "hand")] == [True, False]
    assert not only(controller.events, "refuse", "admit")


def test_what_the_policy_refuses_can_be_admitted_by_hand() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=5 * MIB)
    controller = control(plant)
    run(controller, 20)
    assert plant.refuses
    ByHand(controller).refuse_sessions(False)
    assert not plant.refuses
    run(controller, 5)
    assert plant.refuses  # nothing has changed, so it is decided again


def test_sessions_that_were_refused_by_hand_are_admitted_at_the_end() -> None:
    plant = Plant()
    with control(plant) as controller:
        ByHand(controller).refuse_sessions(True)
    assert not plant.refuses and only(controller.events, "admit")


def test_a_controller_that_ends_leaves_nobody_refused() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=4 * MIB)
    with control(plant) as controller:
        run(controller, 5)
        assert plant.refuses
    assert not plant.refuses


def test_a_dry_run_refuses_nobody() -> None:
    plant = Plant([Pipe(wanted=1000)], budget_bytes=4 * MIB)
    controller = control(plant, dry_run=True)
    run(controller, 5)
    assert kinds(controller.events)[-1] == "refuse" and not plant.refuses
