# SPDX-License-Identifier: BSD-2-Clause
"""Whatever fails in the loop is named once, and the next round goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from tests.control.plant import MIB, Deceived, Pipe, Plant, Truth, kinds, only
from tests.control.test_controller import control, run

from livedma.control.act.controller import Controller
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.events import Event
from livedma.control.policy import policies
from livedma.control.policy.plan import Action, Demand, Extend, Plan, Room, SetCredits, Shrink
from livedma.errors import BudgetError, LimitError, NoRoomError
from livedma.monitor.snapshot import Connection, Snapshot

ERRORS = [
    NoRoomError("the window has no room"),
    BudgetError("the budget is used up"),
    LimitError("RLIMIT_MEMLOCK is 8 MiB"),
    MemoryError(),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ValueError("credits are 1 to 1024"),
    ZeroDivisionError("a bug"),
]


def failing(kind: type[Action], error: Exception) -> Callable[[Action], None]:
    def fail(action: Action) -> None:
        if isinstance(action, kind):
            raise error

    return fail


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("policy", ["extend", "spread", "migrate"])
def test_no_failure_of_an_action_ends_it_and_later_ones_are_tried(
    policy: str, error: Exception
) -> None:
    plant = Plant([Pipe(wanted=100)])
    plant.failing = failing(Action, error)  # type: ignore[arg-type]
    controller = control(plant, policy)
    run(controller, 30)
    failures = only(controller.events, "failed")
    assert 2 <= len(failures) <= 4  # less and less often
    assert all(one.text.endswith("; all is as it was") for one in failures)
    assert (plant.pipe.buffers, plant.pipe.credits) == (56, 64)
    plant.failing = lambda _: None
    run(controller, 60)
    assert plant.done


@pytest.mark.parametrize(
    ("error", "is_of_host"),
    [
        (NoRoomError("the window is full"), False),
        (BudgetError("the budget is used up"), True),
        (LimitError("this user may lock no more"), True),
        (MemoryError("this host has no memory left"), True),
    ],
    ids=lambda one: type(one).__name__,
)
def test_memory_that_cannot_be_had_is_a_lack_of_memory(error: Exception, is_of_host: bool) -> None:
    plant = Plant([Pipe(wanted=1000)])
    plant.failing = failing(Extend, error)
    controller = control(plant)
    run(controller, 3)
    (refused,) = only(controller.events, "refuse")
    assert (plant.refuses, plant.refused_on) == ((True, set()) if is_of_host else (False, {1}))
    assert refused.text.endswith(f"and {error}")


def test_what_cannot_be_taken_back_is_said() -> None:
    plant = Plant([Pipe(wanted=200)], width=40)
    plant.failing = failing(Shrink, OSError(errno.EMFILE, "Too many open files"))
    controller = control(plant, truth=Deceived)
    run(controller, 5)
    (undone,) = only(controller.events, "undo")
    assert undone.text.startswith("not all of it: Shrink could not be done (OSError: [Errno 24]")


def test_a_plan_of_several_actions_is_done_as_a_whole_or_not_at_all() -> None:
    class Two:
        name, may_refuse = "two", False

        def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan:
            return Plan((SetCredits(1, 100), Extend(1, MIB, 100)), "both")

        def relax(self, connection: Connection, demand: Demand) -> None: ...

    plant = Plant([Pipe(wanted=200)])
    plant.failing = failing(Extend, NoRoomError("no"))
    controller = control(plant)
    controller.policy = Two()
    run(controller, 1)
    assert plant.done == [SetCredits(1, 100), SetCredits(1, 64)]
    assert plant.pipe.credits == 64


@pytest.mark.parametrize("method", ["plan", "relax"])
def test_a_policy_that_fails_is_named_and_another_may_take_over(method: str) -> None:
    class Broken:
        name, may_refuse = "broken", True

        def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> None:
            if method == "plan":
                raise KeyError("a bug")

        def relax(self, connection: Connection, demand: Demand) -> None:
            if method == "relax":
                raise KeyError("a bug")

    plant = Plant([Pipe(wanted=100 if method == "plan" else 10)])
    controller = control(plant)
    controller.policy = Broken()
    run(controller, 20)
    (failure,) = only(controller.events, "failed")  # once, not ten times a second
    assert failure.text == "the policy broken, connection 1: KeyError: 'a bug'"
    controller.policy = policies.by_name("extend")
    plant.pipe.wanted = 100
    run(controller, 10)
    assert isinstance(plant.done[0], Extend)


def test_a_source_that_fails_is_named_and_asked_again() -> None:
    class Source(Plant):
        error: Exception | None = None

        def observe(self) -> Snapshot:
            if self.error is not None:
                raise self.error
            return super().observe()

    plant = Source([Pipe(wanted=100)])
    controller = control(plant)
    plant.error = OSError(errno.EMFILE, "Too many open files")
    run(controller, 5)
    plant.error = None
    run(controller, 2)
    found = [one.line for one in controller.events.after()][:2]
    assert found == [
        "failed    observing: OSError: [Errno 24] Too many open files",
        "recovered observing: works again",
    ]
    assert plant.done


def test_a_diagnosis_that_fails_is_begun_anew() -> None:
    class Poisoned(Truth):
        def __init__(self, plant: Plant) -> None:
            super().__init__(plant)
            made.append(self)

        def see(self, snapshot: Snapshot) -> tuple[Diagnosis, ...]:
            if len(made) == 1:
                raise RuntimeError("what it remembers is wrong")
            return super().see(snapshot)

    made: list[Poisoned] = []
    plant = Plant([Pipe(wanted=100)])
    controller = control(plant, truth=Poisoned)
    run(controller, 2)
    assert len(made) == 2 and plant.done
    assert kinds(controller.events)[:2] == ["failed", "recovered"]


def test_a_listener_that_fails_ends_nothing() -> None:
    def listen(_: object) -> None:
        raise RuntimeError("nobody listens")

    plant = Plant([Pipe(wanted=100)])
    controller = control(plant)
    controller.events.listeners.append(listen)
    run(controller, 3)
    controller.events.listeners.clear()
    plant.pipe.wanted = 1000
    run(controller, 5)
    assert plant.done


def test_its_thread_outlives_everything_and_ends_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the descriptors have run out, for the looks of the thread alone."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    plant = Plant()
    with control(plant) as controller:
        monkeypatch.setattr("livedma.control.act.controller.os.open", refuse)
        controller.start()
        assert _told(controller, "failed").text.startswith("file descriptors: OSError: [Errno 24]")
        monkeypatch.undo()
        assert _told(controller, "recovered").text == "file descriptors: works again"
        assert os.open  # the real one again


def _told(controller: Controller, kind: str) -> Event:
    number = 0
    for _ in range(20):
        for event in controller.events.after(number, 1.0):
            number = event.number
            if event.kind == kind:
                return event
    raise AssertionError(f"no {kind} event in 20 s")
