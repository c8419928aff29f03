# SPDX-License-Identifier: BSD-2-Clause
"""New sessions are refused while there is no memory for those that are there: on the connection
whose window is full, and for everybody once the host has no memory left.
"""

from __future__ import annotations

import pytest
from tests.control.plant import MIB, Pipe, Plant, kinds, only
from tests.control.test_controller import control, run

from livedma.control.act.by_hand import ByHand
from livedma.control.policy import policies
from livedma.control.policy.plan import Action, RefuseSessions
from livedma.errors import LivedmaError

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


def test_a_full_window_refuses_on_its_own_connection_alone() -> None:
    plant = Plant([Pipe(number=1, wanted=1000), Pipe(number=2, wanted=20)])
    controller = control(plant)
    run(controller, 20)
    assert plant.refused_on == {1} and not plant.refuses
    (refused,) = only(controller.events, "refuse")
    assert refused.connection == 1 and "left of its window of 16 MiB" in refused.text
    plant.pipe.wanted = 10
    run(controller, 1)
    assert plant.refused_on == {1}  # not at once
    run(controller, 5)
    assert not plant.refused_on
    (admitted,) = only(controller.events, "admit")
    assert admitted.connection == 1


def test_each_connection_has_a_switch_of_its_own() -> None:
    plant = Plant([Pipe(number=1, wanted=1000), Pipe(number=2, wanted=1000)])
    controller = control(plant)
    run(controller, 20)
    assert plant.refused_on == {1, 2} and not plant.refuses
    plant.pipes[1].wanted = 10
    run(controller, 6)
    assert plant.refused_on == {1}


def test_a_full_window_and_no_memory_for_a_further_connection_refuse_everybody() -> None:
    """16 MiB and 4 MiB of 22 are mapped: a further connection begins with 4."""
    pipes = [Pipe(number=1, wanted=1000), Pipe(number=2, wanted=20)]
    plant = Plant(pipes, budget_bytes=22 * MIB, first_bytes=4 * MIB)
    controller = control(plant)
    run(controller, 20)
    assert plant.pipe.room_bytes < 1 * MIB and plant.refused_on == {1} and plant.refuses
    everybody = [one for one in only(controller.events, "refuse") if one.connection is None]
    assert len(everybody) == 1 and everybody[0].data["waits"] == 1
    assert "everybody" in everybody[0].line
    plant.budget_bytes = 64 * MIB
    run(controller, 6)
    assert plant.refused_on == {1} and not plant.refuses  # its window is still full


def test_a_connection_that_ends_while_it_is_refused_leaves_nothing_behind() -> None:
    plant = Plant([Pipe(number=1, wanted=1000), Pipe(number=2, wanted=20)])
    controller = control(plant)
    ByHand(controller).refuse_sessions(True, 2)
    run(controller, 20)
    assert plant.refused_on == {1, 2}
    plant.pipes = [Pipe(number=3, wanted=20)]
    plant.refused_on.clear()  # as the server does when connections end
    run(controller, 6)
    assert not only(controller.events, "admit", "failed")
    plant.pipes.append(Pipe(number=1, wanted=1000))
    run(controller, 20)
    assert plant.refused_on == {1}
    controller.close()
    assert [one.connection for one in only(controller.events, "admit")] == [1]


def test_a_connection_that_ends_at_the_last_moment_does_no_harm() -> None:
    plant = Plant([Pipe(number=1, wanted=1000)])

    def end(action: Action) -> None:
        if isinstance(action, RefuseSessions):
            plant.pipes = []

    plant.failing = end
    controller = control(plant)
    run(controller, 20)
    assert not only(controller.events, "refuse", "failed") and not plant.refused_on


def test_by_hand_a_connection_and_everybody_are_two_things() -> None:
    plant = Plant([Pipe(number=1, wanted=10), Pipe(number=2, wanted=10)])
    controller = control(plant)
    by_hand = ByHand(controller)
    run(controller, 1)
    by_hand.refuse_sessions(True, 2)
    by_hand.refuse_sessions(True)
    by_hand.refuse_sessions(False)
    assert plant.refused_on == {2} and not plant.refuses
    run(controller, 6)
    assert plant.refused_on == {2}
    by_hand.refuse_sessions(False, 2)
    assert not plant.refused_on
    hands = [(one.connection, one.data["is_refused"]) for one in only(controller.events, "hand")]
    assert hands == [(2, True), (None, True), (None, False), (2, False)]
    with pytest.raises(LivedmaError, match="connection 9 has ended"):
        by_hand.refuse_sessions(True, 9)


def test_what_is_refused_on_a_connection_by_hand_the_policy_does_not_admit() -> None:
    plant = Plant([Pipe(number=1, wanted=1000)])
    controller = control(plant)
    run(controller, 20)
    assert plant.refused_on == {1}
    ByHand(controller).refuse_sessions(True, 1)
    plant.pipe.wanted = 10
    run(controller, 20)
    controller.policy = policies.by_name("static")
    assert plant.refused_on == {1}
    controller.close()
    assert not plant.refused_on
