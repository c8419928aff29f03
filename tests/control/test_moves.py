# SPDX-License-Identifier: BSD-2-Clause
"""What clients are asked for: another connection, or to move. They may, or they may not."""

from __future__ import annotations

import pytest
from tests.control.plant import MIB, Pipe, Plant, kinds, only
from tests.control.test_controller import control, run

from livedma.control.act.hands import Progress
from livedma.control.policy.plan import Migrate, Spread


def spread_to(plant: Plant, number: int, wanted: int) -> None:
    """The client does what it is asked for, and has new sessions for the new connection."""
    plant.pipes.append(Pipe(number=number, wanted=wanted))
    text = f"new sessions go to connection {number}"
    plant.follow = lambda _: Progress(text, is_over=True, successor=number)


def test_spread_asks_once_and_then_looks_at_the_other_connection() -> None:
    plant = Plant([Pipe(number=1, wanted=100)])
    controller = control(plant, "spread")
    run(controller, 1)
    assert plant.done == [Spread(1)]
    spread_to(plant, 2, wanted=10)
    run(controller, 20)
    assert plant.done == [Spread(1)]  # though 1 is as slow as before
    assert only(controller.events, "check")[0].text == "new sessions go to connection 2"
    plant.pipes[1].wanted = 100
    plant.follow = lambda _: Progress("asked")
    run(controller, 2)
    assert plant.done == [Spread(1), Spread(2)]


def test_spread_asks_again_when_the_other_connection_has_gone() -> None:
    plant = Plant([Pipe(number=1, wanted=100)])
    controller = control(plant, "spread")
    run(controller, 1)
    spread_to(plant, 2, wanted=0)
    run(controller, 3)
    plant.pipes.pop()
    run(controller, 6)
    assert plant.done == [Spread(1), Spread(1)]


@pytest.mark.parametrize("is_old_there", [False, True])
def test_a_migration_is_judged_on_the_connection_where_sessions_went(is_old_there: bool) -> None:
    plant = Plant([Pipe(number=1, wanted=150)])
    controller = control(plant, "migrate")
    run(controller, 1)
    (move,) = plant.done
    assert isinstance(move, Migrate) and move.bytes == 16 * MIB
    new = Pipe(number=2, wanted=150, buffers=224, credits=255, first_bytes=16 * MIB)
    plant.follow = lambda _: Progress("3 of 3 sessions moved to connection 2", True, "", 2)
    if is_old_there:
        plant.pipe.wanted = 0
        plant.pipes.append(new)
    else:
        plant.pipes[:] = [new]
    run(controller, 5)
    moved, judged = only(controller.events, "check")
    assert (moved.connection, moved.text) == (1, "3 of 3 sessions moved to connection 2")
    assert judged.connection == 2 and judged.text.endswith(": keep")
    assert "bandwidth +16" in judged.text  # 56 -> 150 buffers


@pytest.mark.parametrize("policy", ["spread", "migrate"])
def test_a_client_that_is_refused_stays_and_is_asked_again_later(policy: str) -> None:
    plant = Plant([Pipe(wanted=100)])
    plant.follow = lambda _: Progress("", True, "no memory for another connection")
    controller = control(plant, policy)
    run(controller, 4)
    assert kinds(controller.events) == ["degraded", "why", "plan", "done", "failed"]
    text = "no memory for another connection; all is as it was"
    assert only(controller.events, "failed")[0].text == text
    run(controller, 4)
    assert len(plant.done) == 2


@pytest.mark.parametrize("policy", ["spread", "migrate"])
def test_a_client_that_does_nothing_is_not_waited_for_for_ever(policy: str) -> None:
    plant = Plant([Pipe(wanted=100)])
    controller = control(plant, policy)
    run(controller, 25)
    assert not plant.given_up and len(plant.done) == 1
    run(controller, 10)
    assert plant.given_up == plant.done[:1]
    assert "has not done it within 30 s" in only(controller.events, "failed")[0].text


def test_a_connection_that_is_lost_while_it_moves_is_told() -> None:
    plant = Plant([Pipe(wanted=100)])
    controller = control(plant, "migrate")
    run(controller, 1)
    plant.pipes.clear()
    plant.follow = lambda _: Progress("", True, "the connection has ended")
    run(controller, 1)
    assert only(controller.events, "failed")[0].text.startswith("the connection has ended")


def test_a_client_that_comes_back_is_judged_where_it_came_to() -> None:
    """Its connection has ended before it is back, and the end of its absence is told elsewhere."""
    plant = Plant([Pipe(number=1, wanted=150)])
    controller = control(plant, "migrate")
    plant.follow = lambda _: Progress("", is_told=True)
    run(controller, 1)
    plant.pipes.clear()
    run(controller, 2)
    plant.follow = lambda _: Progress("", True, "", 2, is_told=True)
    plant.pipes.append(Pipe(number=2, wanted=150, buffers=224, credits=255, first_bytes=4 * MIB))
    run(controller, 5)
    (judged,) = only(controller.events, "check")
    assert judged.connection == 2 and judged.text.endswith(": keep")
    assert not plant.given_up and not only(controller.events, "failed")


def test_a_client_that_does_not_come_back_is_given_up() -> None:
    plant = Plant([Pipe(number=1, wanted=150)])
    controller = control(plant, "migrate")
    plant.follow = lambda _: Progress("", is_told=True)
    run(controller, 1)
    plant.pipes.clear()
    run(controller, 35)
    assert plant.given_up == plant.done
